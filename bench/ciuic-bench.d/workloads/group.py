"""Consumer groups: how long they take to share their partitions out anew."""

import contenders
import metrics
import settings
from declare import LESS, Axis, Benchmark, Metric, Plot, Point, Workload

TOPIC = "shared"
PARTITIONS_A_MEMBER = 4

ALL = Metric("all_s", "all join at once", "s", LESS, "until each has its share and every partition is somebody's")
MORE_ONE = Metric("one_more_s", "one more comes", "s", LESS, "until it has its share, too")
LESS_ONE = Metric("one_less_s", "it leaves", "s", LESS, "until the others have its partitions; its own closing included")
BROKER = Metric("broker_cpu_s", "broker CPU", "CPU s", LESS, "of all three together")
CLIENT = Metric("client_cpu_s", "members' CPU", "CPU s", LESS, "of all three together")


class Group(Workload):
    """Each round is a new group in one process, every member with a connection and threads of its own."""

    def prepare(self, point):
        self.rounds = 0
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.create(TOPIC, self.parameters(point)["members"] * PARTITIONS_A_MEMBER)

    def measure(self, contender, point):
        members, broker = self.parameters(point)["members"], self.brokers[contender.broker]
        self.rounds += 1  # a name of its own: members of the round before may not be forgotten yet
        words = {"topic": TOPIC, "members": members, "partitions": members * PARTITIONS_A_MEMBER, "watch": broker.pid,
                 **settings.words(contender.settings), "set.group.id": f"ciuic-bench-{point.label}-{self.rounds}", "set.bootstrap.servers": broker.address}
        (line,) = self.world.driver(contender.driver, "group", words)
        return {"metrics": {ALL.name: line["all_seconds"], MORE_ONE.name: line["one_more_seconds"], LESS_ONE.name: line["one_less_seconds"],
                            BROKER.name: line["broker"]["cpu_seconds"], CLIENT.name: line["client"]["cpu_seconds"]}, "detail": metrics.detail_of(line)}

    def clean(self, point):
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.delete(TOPIC)


BENCHMARKS = (
    Benchmark(
        name="group-rebalance",
        question="How long does a consumer group stand still when members come and go?",
        workload=f"4, 16 and 64 members join a group of {PARTITIONS_A_MEMBER} partitions a member at once; then one more joins, and leaves.",
        run=Group,
        axis=Axis("members", "", tuple(Point(str(count), count, {"members": count}, quick=count == 4) for count in (4, 16, 64))),
        contenders=contenders.MEMBERS,
        metrics=(ALL, MORE_ONE, LESS_ONE, BROKER, CLIENT),
        parameters={},
        shared_settings=settings.APACHE_JVM + settings.PROMPT_GROUPS,
        plots=(Plot("all_s", "All join at once", True), Plot("one_more_s", "One more comes"), Plot("one_less_s", "One leaves")),
        seconds=400,
    ),
)

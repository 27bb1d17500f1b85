"""What a training job notices of its data: the time in which it waits for it."""

import contenders
import metrics
import settings
from declare import LESS, Axis, Benchmark, Metric, Plot, Point, Workload

TOPIC = "train"
WARM_STEPS = 3

STALL = Metric("stall_share", "stalled", "of the time", LESS, "in which the ranks wait for records; the rest they compute")
MEDIAN = Metric("stall_p50_ms", "median stall", "ms", LESS, "of a step, until the slowest rank has its records")
TAIL = Metric("stall_p99_ms", "99th percentile", "ms", LESS, "of the steps' stalls")


class Train(Workload):
    """Each rank reads a topic of its own, once from its beginning; all take a step together."""

    def _records(self, point):
        about = self.parameters(point)
        return (about["steps"] + WARM_STEPS) * about["batch.records"]

    def prepare(self, point):
        about = self.parameters(point)
        for broker in self.brokers.values():
            for rank in range(about["ranks"]):
                self.world.fill(broker, f"{TOPIC}-{rank}", 1, self._records(point), about["record.bytes"])

    def measure(self, contender, point):
        about, broker = self.parameters(point), self.brokers[contender.broker]
        (line,) = self.world.driver(contender.driver, "train", {
            "topic": TOPIC, "warm.steps": WARM_STEPS, "watch": broker.pid, **about, **settings.words(contender.settings), "set.bootstrap.servers": broker.address})
        found = metrics.of_transfer(line)
        return {"metrics": {STALL.name: line["stalled_seconds"] / line["seconds"], MEDIAN.name: line["stall_p50_ms"], TAIL.name: line["stall_p99_ms"], **found},
                "detail": metrics.detail_of(line)}

    def clean(self, point):
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                for rank in range(self.parameters(point)["ranks"]):
                    admin.delete(f"{TOPIC}-{rank}")


def _points():
    for records in (8, 32, 128, 512):
        megabytes = records * 4 * 16384 / 1e6
        yield Point(f"{megabytes:.0f} MB", megabytes, {"batch.records": records}, quick=records == 32)


BENCHMARKS = (
    Benchmark(
        name="train",
        question="How long does a training job wait for its data?",
        workload="Four data-parallel ranks; each step all take their part of a global batch of 16 KiB samples, unpacked and looked at, then compute for 20 ms.",
        run=Train,
        axis=Axis("global batch", "MB", tuple(_points())),
        contenders=(contenders.ONE_SIDED_RECORDS, contenders.OUR_TCP_RECORDS, contenders.RDKAFKA_OURS_RECORDS, contenders.RDKAFKA_APACHE_RECORDS),
        metrics=(STALL, MEDIAN, TAIL, metrics.MB_S, *metrics.COSTS),
        parameters={"ranks": 4, "record.bytes": 16384, "step.ms": 20, "steps": 40},
        quick={"steps": 5},
        shared_settings=settings.APACHE_JVM + settings.FILL,
        plots=(Plot("stall_share", "Stalled"), Plot("stall_p99_ms", "99th percentile of a step's stall", True), Plot("broker_cpu_s_gb", "Broker CPU a GB", True)),
        seconds=400,
    ),
)

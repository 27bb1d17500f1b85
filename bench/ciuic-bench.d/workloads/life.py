"""A broker's own life: how long it takes to start, what it takes when nothing happens."""

import time

import settings
import wire
from declare import LESS, Axis, Benchmark, Contender, Metric, Plot, Point, Workload

MIB, GIB = 1 << 20, 1 << 30
TOPIC = "kept"
RECORD_BYTES = 1024

SERVES = Metric("serves_s", "serves after", "s", LESS, "from the exec to an answered Metadata request; Apache's to 0.1 s")
START_CPU = Metric("start_cpu_s", "CPU of the start", "CPU s", LESS, "user and system time of the broker until then")
START_RESIDENT = Metric("start_resident_mib", "resident after the start", "MiB", LESS, "VmRSS")

CLEAN, KILLED = {"end": "clean"}, {"end": "killed"}
STARTS = (
    Contender("ours, clean", "our broker after a clean stop", words=CLEAN),
    Contender("ours, killed", "our broker after kill -9", words=KILLED),
    Contender("Apache, clean", "Apache Kafka after a clean stop", broker="apache", words=CLEAN),
    Contender("Apache, killed", "Apache Kafka after kill -9", broker="apache", words=KILLED),
)


class Start(Workload):
    """A log is written; each round starts a broker on it and times that."""

    def open(self):
        self.brokers = {}

    def prepare(self, point):
        about = self.parameters(point)
        for which in dict.fromkeys(contender.broker for contender in self.contenders):
            broker = self.world.broker(which, self.benchmark.shared_settings, self.world.new_folder(which))
            self.world.fill(broker, TOPIC, about["partitions"], max(about["bytes"] // RECORD_BYTES, 1), RECORD_BYTES)
            self.brokers[which] = broker

    def measure(self, contender, point):
        before = self.brokers[contender.broker]
        if contender.words["end"] == "clean":
            self.world.stop(before)
        else:
            # A record after the last flush: there is something to recover.
            self.world.driver("bench_client", "produce", {"topic": TOPIC, "records": 1000, "record.bytes": RECORD_BYTES,
                                                          "set.bootstrap.servers": before.address})
            self.world.kill(before)
        began = time.monotonic()
        broker = self.world.broker(contender.broker, self.benchmark.shared_settings, before.folder)
        while not wire.serves(broker.address):
            self.world.sleep(0.001)
        seconds = time.monotonic() - began
        self.brokers[contender.broker] = broker
        return {"metrics": {SERVES.name: seconds, START_CPU.name: broker.cpu_seconds(), START_RESIDENT.name: broker.memory_mib()["VmRSS"]}}

    def clean(self, point):
        for broker in self.brokers.values():
            self.world.stop(broker)
        self.brokers = {}


START = dict(
    run=Start, contenders=STARTS, metrics=(SERVES, START_CPU, START_RESIDENT), shared_settings=settings.APACHE_JVM + settings.FILL,
    plots=(Plot("serves_s", "Time until it serves", True), Plot("start_cpu_s", "CPU until it serves", True)), seconds=420)

IDLE_CPU = Metric("idle_cpu_ms_s", "broker CPU", "ms/s", LESS, "CPU time of the broker in a second in which nothing is asked of it")
IDLE_CLIENTS_CPU = Metric("idle_clients_cpu_ms_s", "clients' CPU", "ms/s", LESS, "of all idle readers together")
IDLE_HEAP = Metric("idle_heap_mib", "broker heap", "MiB", LESS, "RssAnon")
IDLE_RESIDENT = Metric("idle_resident_mib", "broker resident", "MiB", LESS, "VmRSS less RssShmem: without the arena")
READERS_IDLE = 100


class Idle(Workload):
    """A broker with one topic of one record; nobody, or readers who wait at the log's end."""

    def open(self):
        super().open()
        for broker in self.brokers.values():
            self.world.fill(broker, TOPIC, 1, 1, RECORD_BYTES)
        self.world.sleep(0 if self.quick else 5)  # a JVM has work left after its start

    def measure(self, contender, point):
        about, broker = self.parameters(point), self.brokers[contender.broker]
        clients = {}
        if about["readers"]:
            (line,) = self.world.driver(contender.driver, "idle", {
                "topic": TOPIC, "readers": about["readers"], "seconds": about["seconds"], "watch": broker.pid,
                **settings.words(contender.settings), "set.bootstrap.servers": broker.address})
            cpu, seconds = line["broker"]["cpu_seconds"], line["seconds"]
            clients = {IDLE_CLIENTS_CPU.name: line["client"]["cpu_seconds"] / seconds * 1000}
        else:
            before, began = broker.cpu_seconds(), time.monotonic()
            self.world.sleep(about["seconds"])
            cpu, seconds = broker.cpu_seconds() - before, time.monotonic() - began
        memory = broker.memory_mib()
        return {"metrics": {IDLE_CPU.name: cpu / seconds * 1000, **clients, IDLE_HEAP.name: memory["RssAnon"],
                            IDLE_RESIDENT.name: memory["VmRSS"] - memory["RssShmem"]}}


WAITING = settings.LIBRDKAFKA_PROMPT_READER
IDLE = (
    Contender("one-sided", "our broker; readers of its memory", settings=settings.ONE_SIDED),
    Contender("tcp", "our broker; our client over TCP", settings=settings.OUR_TCP),
    Contender("librdkafka, Apache", "Apache Kafka; librdkafka", broker="apache", driver="bench_librdkafka", settings=WAITING),
)

BENCHMARKS = (
    Benchmark(
        name="start",
        question="How long until a broker serves, however long its log is?",
        workload="A log of 1 KiB records over four partitions; the broker is stopped or killed with a thousand more just written, and started on it.",
        axis=Axis("log", "MiB", (
            Point("16 MiB", 16, {"bytes": 16 * MIB}, quick=True),
            Point("256 MiB", 256, {"bytes": 256 * MIB}),
            Point("2 GiB", 2048, {"bytes": 2 * GIB}),
        )),
        parameters={"partitions": 4},
        **START,
    ),
    Benchmark(
        name="start-partitions",
        question="And however many partitions it has?",
        workload="As start: a log of 64 MiB over 1 to 10,000 partitions.",
        axis=Axis("partitions", "", tuple(Point(f"{count:,}", count, {"partitions": count}, quick=count == 10) for count in (10, 1000, 10000))),
        parameters={"bytes": 64 * MIB},
        **START,
    ),
    Benchmark(
        name="start-large",
        question="And with both, where a crash leaves most to look at?",
        workload="As start: a log of 10 GiB over 10,000 partitions.",
        axis=Axis("partitions", "", (Point("10,000, 10 GiB", 10_000, {"partitions": 10_000, "bytes": 10 * GIB}, quick=True),)),
        parameters={},
        quick={"partitions": 10, "bytes": 16 * MIB},
        **{**START, "seconds": 1200},
    ),
    Benchmark(
        name="idle",
        question="What does a broker cost that nobody uses, and readers who wait?",
        workload="One record in one topic; ten seconds in which nothing is written, alone and with 100 readers at the log's end.",
        run=Idle,
        axis=Axis("waiting readers", "", (
            Point("none", 0, {"readers": 0}, quick=True),
            Point(str(READERS_IDLE), READERS_IDLE, {"readers": READERS_IDLE}, quick=True),
        ), logarithmic=False),
        contenders=IDLE,
        metrics=(IDLE_CPU, IDLE_CLIENTS_CPU, IDLE_HEAP, IDLE_RESIDENT),
        parameters={"seconds": 10},
        quick={"seconds": 1},
        shared_settings=settings.APACHE_JVM + settings.FILL,
        plots=(Plot("idle_cpu_ms_s", "Broker CPU, idle"), Plot("idle_clients_cpu_ms_s", "Clients' CPU, idle")),
        seconds=360,
    ),
)

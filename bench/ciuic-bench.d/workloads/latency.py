"""From the time a record was due to the time its reader has it."""

import resource

import contenders
import metrics
import settings
import wire
from declare import LESS, MORE, Axis, Benchmark, Metric, Plot, Point, Workload
from world import Failed

TOPIC = "prompt"
PERCENTILES = (("p50", "median"), ("p90", "90th percentile"), ("p99", "99th percentile"), ("p999", "99.9th percentile"),
               ("p9999", "99.99th percentile"), ("max", "slowest"))
LATENCIES = tuple(Metric(f"{name}_us", title, "us", LESS, "end to end; the clock starts when the record was due") for name, title in PERCENTILES)
HELD = Metric("rate_held", "rate held", "of the asked", MORE, "records sent in time over those asked for; below 0.98 the figures are of a queue")
MISSING = Metric("missing", "missing", "records", LESS, "not read ten seconds after the last was sent")
CPU_RECORD = Metric("cpu_us_record", "CPU a record", "us", LESS, "of client (writer and reader) and broker together")
BROKER_CPU_RECORD = Metric("broker_cpu_us_record", "broker CPU a record", "us", LESS, "of the broker's process")
WARM_RATE, WARM_SECONDS = 10000, 5


class Latency(Workload):
    """One process writes and reads, in an open loop: what is late counts from when it was due (no coordinated omission)."""

    def open(self):
        super().open()
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.create(TOPIC, 1)
        if "apache" in self.brokers and not self.quick:  # its hot code is compiled
            warm = next(one for one in self.contenders if one.broker == "apache")
            self.world.driver(warm.driver, "latency", self._words(warm, WARM_RATE, WARM_SECONDS, 1024))

    def _words(self, contender, rate, seconds, record_bytes):
        if contender.kind == "limit":
            return {"topic": TOPIC, "rate": rate, "seconds": seconds, "record.bytes": record_bytes}
        broker = self.brokers[contender.broker]
        return {"topic": TOPIC, "rate": rate, "seconds": seconds, "record.bytes": record_bytes, "watch": broker.pid,
                **settings.words(contender.settings), "set.bootstrap.servers": broker.address,
                **settings.words(contender.reader_settings, "read."), "read.bootstrap.servers": broker.address}

    def measure(self, contender, point):
        about = self.parameters(point)
        (line,) = self.world.driver(contender.driver, "latency", self._words(contender, about["rate"], about["seconds"], about["record.bytes"]))
        found = {metric.name: line[metric.name] for metric in LATENCIES}
        broker, client = line["broker"]["cpu_seconds"], line["client"]["cpu_seconds"]
        found |= {HELD.name: min(line["rate_sent"] / about["rate"], 1.0), MISSING.name: line["missing"],
                  CPU_RECORD.name: (broker + client) / line["records"] * 1e6, BROKER_CPU_RECORD.name: broker / line["records"] * 1e6}
        return {"metrics": found | self.more(line), "detail": metrics.detail_of(line), "histogram": line.get("histogram")}

    def more(self, line):
        """What a benchmark of its own kind tells besides."""
        return {}


HIGHEST = Metric("highest_rate", "highest rate held", "1/s", MORE, "records a second that are sent in time, all read, and do not queue up")
HALF = Metric("half_p999_us", "99.9th percentile at half of it", "us", LESS, "end to end")
HALF_MEDIAN = Metric("half_p50_us", "median at half of it", "us", LESS, "end to end")
QUEUE_US, BISECTIONS = 100_000, 3  # a median above is one that grows as long as it is fed


class HighestRate(Latency):
    """Doubles the rate until it is not held, halves the gap a few times, and measures at half of what is."""

    def _at(self, contender, rate):
        about = self.parameters(self.benchmark.axis.points[0])
        (line,) = self.world.driver(contender.driver, "latency", self._words(contender, rate, about["seconds"], about["record.bytes"]))
        return line

    def _held(self, contender, rate):
        line = self._at(contender, rate)
        return line["rate_sent"] >= 0.98 * rate and line["missing"] == 0 and line["p50_us"] < QUEUE_US

    def measure(self, contender, point):
        about = self.parameters(point)
        held, failed = 0, about["first_rate"]
        while failed <= about["last_rate"] and self._held(contender, failed):
            held, failed = failed, failed * 2
        for _ in range(BISECTIONS if failed <= about["last_rate"] else 0):
            middle = (held + failed) // 2
            held, failed = (middle, failed) if self._held(contender, middle) else (held, middle)
        if held < 2:
            raise Failed(f"{contender.name} does not hold {about['first_rate']} records a second")
        line = self._at(contender, held // 2)
        return {"metrics": {HIGHEST.name: held, HALF.name: line["p999_us"], HALF_MEDIAN.name: line["p50_us"]}, "detail": metrics.detail_of(line)}


class Profile(Latency):
    """The same with a topic of its own a point."""

    def open(self):
        Workload.open(self)

    def prepare(self, point):
        self.about = self.parameters(point)
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.create(TOPIC, self.about["partitions"])

    def _words(self, contender, rate, seconds, record_bytes):
        return {**super()._words(contender, rate, seconds, record_bytes), "partitions": self.about["partitions"], "readers": self.about["readers"]}

    def clean(self, point):
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.delete(TOPIC)


CONNECTION_HEAP = Metric("heap_kib_connection", "broker heap a connection", "KiB", LESS, "RssAnon over that before they were made")


class Connections(Latency):
    """The same, while so many other connections to the broker are open, each of which has been served once."""

    def prepare(self, point):
        count = self.parameters(point)["connections"]
        least = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (least[1], least[1]))  # ours; a broker of either kind raises its own
        self.open_connections, self.heap = [], {}
        for which, broker in self.brokers.items():
            before = broker.memory_mib()["RssAnon"]
            for _ in range(count):
                self.open_connections.append(wire.Admin(broker.address))
                self.open_connections[-1].ends(TOPIC, 1)
            self.heap[which] = (broker.memory_mib()["RssAnon"] - before) * 1024 / count if count else None

    def measure(self, contender, point):
        found = super().measure(contender, point)
        if self.heap[contender.broker] is not None:
            found["metrics"][CONNECTION_HEAP.name] = self.heap[contender.broker]
        return found

    def clean(self, point):
        for one in self.open_connections:
            one.socket.close()


CONTENDERS = (contenders.PROMPT_ONE_SIDED, contenders.PROMPT_TCP, contenders.PROMPT_RDKAFKA_OURS, contenders.PROMPT_RDKAFKA_APACHE)
METRICS = (LATENCIES[0], LATENCIES[2], LATENCIES[3], LATENCIES[1], *LATENCIES[4:], HELD, MISSING, CPU_RECORD, BROKER_CPU_RECORD)

BENCHMARKS = (
    Benchmark(
        name="latency",
        question="How long until a reader has a record, at which rate?",
        workload="1 KiB records to one partition at 100, 1,000 and 10,000 a second, ten seconds a round, sent when they are due; the reader follows.",
        run=Latency,
        axis=Axis("records a second", "1/s", (
            Point("100/s", 100, {"rate": 100}),
            Point("1,000/s", 1000, {"rate": 1000}, quick=True),
            Point("10,000/s", 10000, {"rate": 10000}),
        )),
        contenders=(contenders.RELAY, *CONTENDERS),
        metrics=METRICS,
        parameters={"record.bytes": 1024, "seconds": 10},
        quick={"seconds": 1},
        shared_settings=settings.APACHE_JVM + settings.SMALL_SEGMENTS,
        plots=(Plot("p50_us", "Median", True), Plot("p99_us", "99th percentile", True), Plot("p999_us", "99.9th percentile", True)),
        seconds=900,
    ),
    Benchmark(
        name="latency-highest-rate",
        question="Which rate does one partition hold, and how long does a record take at half of it?",
        workload="As latency; the rate is doubled from 5,000 a second until records are not sent in time or queue up, then bisected.",
        run=HighestRate,
        axis=Axis("record size", "B", (Point("1 KiB", 1024, {"record.bytes": 1024}, quick=True),)),
        contenders=CONTENDERS,
        metrics=(HIGHEST, HALF, HALF_MEDIAN),
        parameters={"seconds": 1, "first_rate": 5000, "last_rate": 1_000_000},
        quick={"last_rate": 5000},
        shared_settings=settings.APACHE_JVM + settings.SMALL_SEGMENTS,
        plots=(Plot("highest_rate", "Highest rate held"), Plot("half_p999_us", "99.9th percentile at half of it")),
        seconds=700,
    ),
    Benchmark(
        name="openmessaging",
        question="And under the profiles that brokers are compared by?",
        workload="The OpenMessaging benchmark's shapes, named as there: topics of 1, 16 and 100 partitions, records of 1 KiB and 100 bytes, one subscription "
                 "or five, 10,000 records a second (theirs: 50,000, on machines of their own), ten seconds a round; every reader reads all.",
        run=Profile,
        axis=Axis("profile", "", (
            Point("1-topic-1-partition-1kb", 1, {"partitions": 1}),
            Point("1-topic-16-partitions-1kb", 2, {"partitions": 16}, quick=True),
            Point("1-topic-100-partitions-1kb", 3, {"partitions": 100}),
            Point("1-topic-16-partitions-100b", 4, {"partitions": 16, "record.bytes": 100}),
            Point("1-topic-16-partitions-1kb-5-subscriptions", 5, {"partitions": 16, "readers": 5}),
        ), logarithmic=False),
        contenders=CONTENDERS,
        metrics=METRICS,
        parameters={"record.bytes": 1024, "seconds": 10, "rate": 10_000, "readers": 1},
        quick={"seconds": 1, "rate": 1000},
        shared_settings=settings.APACHE_JVM + settings.SMALL_SEGMENTS,
        plots=(Plot("p50_us", "Median", True), Plot("p99_us", "99th percentile", True), Plot("cpu_us_record", "CPU a record", True)),
        seconds=1200,
    ),
    Benchmark(
        name="connections",
        question="Do other connections, idle ones, slow anybody down?",
        workload="As latency, 1,000 records a second, beside up to 5,000 connections that each made one request before.",
        run=Connections,
        axis=Axis("other connections", "", (
            Point("none", 0, {"connections": 0}),
            Point("100", 100, {"connections": 100}, quick=True),
            Point("1,000", 1000, {"connections": 1000}),
            Point("5,000", 5000, {"connections": 5000}),
        ), logarithmic=False),
        contenders=CONTENDERS,
        metrics=(*METRICS, CONNECTION_HEAP),
        parameters={"record.bytes": 1024, "seconds": 5, "rate": 1000},
        quick={"seconds": 1},
        shared_settings=settings.APACHE_JVM + settings.SMALL_SEGMENTS,
        plots=(Plot("p50_us", "Median", True), Plot("p99_us", "99th percentile", True), Plot("broker_cpu_us_record", "Broker CPU a record", True)),
        seconds=600,
    ),
)

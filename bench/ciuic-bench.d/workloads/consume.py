"""Reading a topic: hot, cold, compressed, by many at once."""

import contenders
import metrics
import settings
import world
from declare import LESS, MORE, TOLD, Axis, Benchmark, Metric, Plot, Point, Workload

MIB, GIB = 1 << 20, 1 << 30
TOPIC = "read"
WARM_BYTES, WARM_BYTES_QUICK = 200_000_000, 5_000_000  # through Apache's broker, before anything is timed: its hot code is compiled

FIRST_PASS = Metric("first_mb_s", "throughput, first pass", "MB/s", MORE,
                    "connecting, grants and the first sight of the memory included; the other figures are of the second pass, the steady state")


class Consume(Workload):
    """A topic is filled; each round of a contender is a new process that reads it twice, of which the second pass counts."""

    def open(self):
        super().open()
        if "apache" in self.brokers:
            size = WARM_BYTES_QUICK if self.quick else WARM_BYTES
            broker = self.brokers["apache"]
            self.world.fill(broker, "warm", 1, size // 1024, 1024)
            self.world.driver("bench_librdkafka", "consume", {
                "topic": "warm", "records": size // 1024, "record.bytes": 1024, "passes": 3,
                **settings.words(settings.LIBRDKAFKA_READER), "set.bootstrap.servers": broker.address})

    def prepare(self, point):
        about = self.parameters(point)
        self.records = max(about["bytes"] // about["record.bytes"], 1)
        for broker in self.brokers.values():
            self.world.fill(broker, TOPIC, about["partitions"], self.records, about["record.bytes"],
                            **{"payload": about.get("payload", "random"), "set.compression.type": about.get("compression", "none")})

    def words(self, contender, point):
        about = self.parameters(point)
        broker = self.brokers[contender.broker]
        out = {"topic": TOPIC, "records": self.records, "record.bytes": about["record.bytes"], "partitions": about["partitions"],
               "watch": broker.pid, **contender.words, **settings.words(contender.settings), "set.bootstrap.servers": broker.address}
        return out | {key: about[key] for key in ("readers", "seconds", "passes") if key in about}

    def limit(self, contender, point):
        about = self.parameters(point)
        words = {"bytes": self.records * about["record.bytes"]}
        if contender.words["what"] == "tcp":
            words["sockets"] = about.get("readers", 1)
            words["bytes"] *= words["sockets"]
        (line,) = self.world.driver(contender.driver, contender.words["what"], words)
        return {"metrics": metrics.of_limit(line)}

    def measure(self, contender, point):
        if contender.kind == "limit":
            return self.limit(contender, point)
        first, *_, last = self.world.driver(contender.driver, "consume", self.words(contender, point))
        found = metrics.of_transfer(last)
        found[FIRST_PASS.name] = first["bytes"] / 1e6 / first["seconds"]
        return {"metrics": found | self.more(last), "detail": metrics.detail_of(last)}

    def more(self, line):
        """What a benchmark of its own kind tells besides."""
        return {}

    def count(self, contender, point):
        if contender.kind == "limit":
            return {}
        lines, calls = self.world.driver(contender.driver, "consume", self.words(contender, point), counting=self.brokers[contender.broker])
        gb = sum(line["bytes"] for line in lines) / 1e9
        return {metrics.BROKER_SYSCALLS.name: calls["broker"] / gb, metrics.CLIENT_SYSCALLS.name: calls["client"] / gb}

    def clean(self, point):
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.delete(TOPIC)


class ConsumeCold(Consume):
    """The log is not in memory: our broker may hold little of it, and the page cache is dropped before each round."""

    def measure(self, contender, point):
        for broker in self.brokers.values():
            world.drop_page_cache(broker.folder)
        if contender.kind == "peer":
            (line,) = self.world.driver(contender.driver, "consume", self.words(contender, point) | {"passes": 1})
            return {"metrics": metrics.of_transfer(line), "detail": metrics.detail_of(line)}
        segment = max(self.brokers["ours"].folder.rglob(f"{TOPIC}-*/*.log"), key=lambda path: path.stat().st_size)
        (line,) = self.world.driver(contender.driver, contender.words["what"], {"bytes": segment.stat().st_size, "path": segment})
        return {"metrics": metrics.of_limit(line)}


STARVATION = Metric("slowest_share", "slowest reader", "of the fastest", MORE, "records that the slowest reader got, over those of the fastest; 1: none is starved")
BROKER_SHARE = Metric("broker_cpu_share", "broker CPU a second", "cores", LESS, "CPU seconds of the broker in a second of the run")
READERS = Metric("readers", "readers", "", TOLD, "at once, each reading all of the topic")


class FanOut(Consume):
    """Many readers in one process, each with a connection and threads of its own, all reading everything for some seconds."""

    def more(self, line):
        shares = line["reader_records"]
        return {STARVATION.name: min(shares) / max(max(shares), 1), BROKER_SHARE.name: line["broker"]["cpu_seconds"] / line["seconds"],
                READERS.name: len(shares)}


THROUGHPUT_PLOTS = (Plot("mb_s", "Throughput", True), Plot("broker_cpu_s_gb", "Broker CPU a GB", True), Plot("mb_cpu_s", "Throughput a CPU second, client and broker", True))
RECORD_SIZES = Axis("record size", "B", (
    Point("100 B", 100, {"record.bytes": 100, "bytes": 256 * MIB}),
    Point("1 KiB", 1024, {"record.bytes": 1024}, quick=True),
    Point("64 KiB", 65536, {"record.bytes": 65536}),
))

BENCHMARKS = (
    Benchmark(
        name="consume-hot",
        question="How fast is a hot log read, and what does it cost the broker?",
        workload="A topic of 1 GiB that was just written (256 MiB of 100-byte records) is read twice by one reader, every batch's CRC checked.",
        run=Consume,
        axis=RECORD_SIZES,
        contenders=(contenders.MEMCPY, contenders.MEMCPY_REUSED, contenders.CRC32C, contenders.SHM, contenders.TCP,
                    contenders.ONE_SIDED, contenders.ONE_SIDED_COPIED, contenders.OUR_TCP, contenders.OUR_TCP_UNCHECKED, contenders.RDKAFKA_OURS, contenders.RDKAFKA_APACHE),
        metrics=(metrics.MB_S, *metrics.COSTS, metrics.RECORDS_S, FIRST_PASS),
        parameters={"bytes": GIB, "partitions": 1},
        quick={"bytes": 16 * MIB},
        shared_settings=settings.APACHE_JVM + settings.FILL,
        plots=THROUGHPUT_PLOTS,
        seconds=300,
    ),
    Benchmark(
        name="consume-cold",
        question="And a log that nobody has read for a day?",
        workload="As consume-hot, but the log is neither in the broker's memory nor in the page cache: it comes from the disk. One pass.",
        run=ConsumeCold,
        axis=Axis("record size", "B", (Point("1 KiB", 1024, {"record.bytes": 1024}, quick=True),)),
        contenders=(contenders.DISK, contenders.ONE_SIDED, contenders.OUR_TCP, contenders.RDKAFKA_OURS, contenders.RDKAFKA_APACHE),
        metrics=(metrics.MB_S, *metrics.COSTS, metrics.RECORDS_S),
        parameters={"bytes": GIB, "partitions": 1},
        quick={"bytes": 80 * MIB},
        shared_settings=settings.APACHE_JVM + settings.FILL + settings.COLD,
        plots=(Plot("mb_s", "Throughput"), Plot("broker_cpu_s_gb", "Broker CPU a GB")),
        seconds=240,
    ),
    Benchmark(
        name="consume-compressed",
        question="What becomes of it where batches are compressed?",
        workload="Text of 1 KiB records, 512 MiB before compression, read twice; every record is unpacked and looked at. MB are of unpacked values.",
        run=Consume,
        axis=Axis("codec", "", tuple(Point(codec, number, {"compression": codec}, quick=codec == "lz4")
                                     for number, codec in enumerate(("none", "lz4", "zstd", "snappy", "gzip"))), logarithmic=False),
        contenders=tuple(contenders.reading_records(one) for one in (
            contenders.ONE_SIDED, contenders.OUR_TCP, contenders.RDKAFKA_OURS, contenders.RDKAFKA_APACHE)),
        metrics=(metrics.MB_S, *metrics.COSTS, metrics.RECORDS_S, FIRST_PASS),
        parameters={"bytes": 512 * MIB, "partitions": 1, "record.bytes": 1024, "payload": "text"},
        quick={"bytes": 16 * MIB},
        shared_settings=settings.APACHE_JVM + settings.FILL,
        plots=(Plot("mb_s", "Throughput, unpacked"), Plot("broker_cpu_s_gb", "Broker CPU a GB")),
        seconds=600,
    ),
    Benchmark(
        name="consume-partitions",
        question="Does reading slow down with the number of partitions?",
        workload="256 MiB of 1 KiB records over 1 to 1,000 partitions, read twice by one reader.",
        run=Consume,
        axis=Axis("partitions", "", tuple(Point(f"{count:,}", count, {"partitions": count}, quick=count == 10) for count in (1, 10, 100, 1000))),
        contenders=(contenders.ONE_SIDED, contenders.OUR_TCP, contenders.RDKAFKA_OURS, contenders.RDKAFKA_APACHE),
        metrics=(metrics.MB_S, *metrics.COSTS, metrics.RECORDS_S, FIRST_PASS),
        parameters={"bytes": 256 * MIB, "record.bytes": 1024},
        quick={"bytes": 16 * MIB},
        shared_settings=settings.APACHE_JVM + settings.FILL,
        plots=THROUGHPUT_PLOTS,
        seconds=300,
    ),
    Benchmark(
        name="fan-out",
        question="What do more readers of the same data cost the broker, and does one of them starve?",
        workload="A topic of 64 MiB in 1 KiB records, read over and over for three seconds by 1, 4, 16 and 64 readers at once.",
        run=FanOut,
        axis=Axis("readers", "", tuple(Point(str(count), count, {"readers": count}, quick=count == 4) for count in (1, 4, 16, 64))),
        contenders=(contenders.TCP, contenders.ONE_SIDED, contenders.OUR_TCP,
                    contenders.RDKAFKA_APACHE_MANY),
        metrics=(metrics.MB_S, BROKER_SHARE, STARVATION, *metrics.COSTS, metrics.RECORDS_S, FIRST_PASS, READERS),
        parameters={"bytes": 64 * MIB, "partitions": 1, "record.bytes": 1024, "seconds": 3},
        quick={"bytes": 8 * MIB, "seconds": 1},
        shared_settings=settings.APACHE_JVM + settings.FILL,
        plots=(Plot("mb_s", "Throughput of all readers", True), Plot("broker_cpu_share", "Broker CPU", True), Plot("slowest_share", "Slowest reader over fastest")),
        seconds=420,
    ),
)

"""Writing a topic: by record size, batch size, acknowledgement, codec."""

import contenders
import metrics
import settings
from declare import Axis, Benchmark, Plot, Point, Workload

MIB = 1 << 20
TOPIC = "write"
WARM_RECORDS, WARM_RECORDS_QUICK = 500_000, 20_000  # to Apache's broker, before anything is timed: its hot code is compiled


class Produce(Workload):
    """Each round is a new producer; its records are deleted afterwards, so that both brokers stay at one size."""

    def open(self):
        super().open()
        if "apache" in self.brokers:
            broker = self.brokers["apache"]
            with self.world.admin(broker) as admin:
                admin.create("warm", 1)
            self.world.driver("bench_librdkafka", "produce", {
                "topic": "warm", "records": WARM_RECORDS_QUICK if self.quick else WARM_RECORDS, "record.bytes": 1024,
                **settings.words(settings.LIBRDKAFKA_WRITER), "set.bootstrap.servers": broker.address})

    def prepare(self, point):
        self.partitions = self.parameters(point)["partitions"]
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.create(TOPIC, self.partitions)

    def words(self, contender, point):
        about = self.parameters(point)
        broker = self.brokers[contender.broker]
        return {"topic": TOPIC, "records": about["bytes"] // about["record.bytes"], "record.bytes": about["record.bytes"],
                "payload": about.get("payload", "random"), "watch": broker.pid, **settings.words(contender.settings),
                **{"set." + key: value for key, value in about.get("set", {}).items()}, "set.bootstrap.servers": broker.address}

    def _forget(self, contender):
        with self.world.admin(self.brokers[contender.broker]) as admin:
            admin.forget(TOPIC, self.partitions)

    def measure(self, contender, point):
        (line,) = self.world.driver(contender.driver, "produce", self.words(contender, point))
        self._forget(contender)
        return {"metrics": metrics.of_transfer(line), "detail": metrics.detail_of(line)}

    def count(self, contender, point):
        (line,), calls = self.world.driver(contender.driver, "produce", self.words(contender, point), counting=self.brokers[contender.broker])
        self._forget(contender)
        gb = (line["records"] + line["warm_records"]) * line["bytes"] / line["records"] / 1e9
        return {metrics.BROKER_SYSCALLS.name: calls["broker"] / gb, metrics.CLIENT_SYSCALLS.name: calls["client"] / gb}

    def clean(self, point):
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.delete(TOPIC)


def _benchmark(name, question, workload, axis, **parameters):
    return Benchmark(
        name=name, question=question, workload=workload, run=Produce, axis=axis,
        contenders=(contenders.WRITE_OURS, contenders.WRITE_RDKAFKA_OURS, contenders.WRITE_RDKAFKA_APACHE),
        metrics=(metrics.MB_S, metrics.RECORDS_S, *metrics.COSTS),
        parameters={"bytes": 512 * MIB, "partitions": 4, "record.bytes": 1024, **parameters},
        quick={"bytes": 8 * MIB},
        shared_settings=settings.APACHE_JVM + settings.SMALL_SEGMENTS,
        plots=(Plot("mb_s", "Throughput", True), Plot("mb_broker_cpu_s", "Throughput a broker CPU second", True), Plot("records_s", "Records a second", True)),
        seconds=240,
    )


def _points(key, values, quick, **more):
    return tuple(Point(str(value), number, {"set": {key: str(value)}, **more}, quick=value == quick) for number, value in enumerate(values))


BENCHMARKS = (
    _benchmark("produce", "How much does the broker take in, by record size?",
               "512 MiB (200 MiB of 100-byte records) that do not compress, to four partitions, until all are acknowledged by all replicas (one).",
               Axis("record size", "B", (
                   Point("100 B", 100, {"record.bytes": 100, "bytes": 200 * MIB}),
                   Point("1 KiB", 1024, {"record.bytes": 1024}, quick=True),
                   Point("10 KiB", 10240, {"record.bytes": 10240}),
                   Point("100 KiB", 102400, {"record.bytes": 102400, "set": {"batch.size": "1000000"}}),
               ))),
    _benchmark("produce-batch-size", "And by the producer's batch size?", "As produce, 1 KiB records, batch.size from 16 KiB to 1 MB.",
               Axis("batch.size", "B", tuple(Point(label, size, {"set": {"batch.size": str(size)}}, quick=size == 131072) for label, size in (
                   ("16 KiB", 16384), ("128 KiB", 131072), ("1 MB", 1000000))))),
    _benchmark("produce-partitions", "Does writing slow down with the number of partitions?", "As produce, 1 KiB records, over 1 to 1,000 partitions.",
               Axis("partitions", "", tuple(Point(f"{count:,}", count, {"partitions": count}, quick=count == 10) for count in (1, 10, 100, 1000)))),
    _benchmark("produce-acks", "What does acknowledgement cost?", "As produce, 1 KiB records, acks=0, 1 and all; without idempotence where acks is not all.",
               Axis("acks", "", tuple(Point(acks, number, {"set": {"acks": acks, "enable.idempotence": "true" if acks == "all" else "false"}}, quick=acks == "all")
                                      for number, acks in enumerate(("0", "1", "all"))), logarithmic=False)),
    _benchmark("produce-compression", "What does compression cost, and gain?", "As produce, 1 KiB records of text; MB are before compression.",
               Axis("codec", "", _points("compression.type", ("none", "lz4", "zstd", "snappy", "gzip"), "lz4"), logarithmic=False), payload="text"),
)

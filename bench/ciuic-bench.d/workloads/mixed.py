"""Writing and reading at once."""

import contenders
import settings
from declare import LESS, MORE, Axis, Benchmark, Metric, Plot, Point, Workload

MIB = 1 << 20
KEPT, WRITTEN = "kept", "written"
PARTITIONS = 4

WRITE = Metric("write_mb_s", "written", "MB/s", MORE, "record values accepted a second, while the readers read")
READ = Metric("read_mb_s", "read", "MB/s", MORE, "record values that all readers got a second, while the writer writes")
BROKER = Metric("broker_cpu_share", "broker CPU a second", "cores", LESS, "CPU seconds of the broker in a second of writing")
WRITER = Metric("writer_cpu_share", "writer CPU a second", "cores", LESS, "CPU seconds of the writer's process in a second")
READERS = Metric("readers_cpu_share", "readers' CPU a second", "cores", LESS, "CPU seconds of the readers' process in a second")


class Mixed(Workload):
    """A writer at full speed into one topic, readers at full speed from another, for some seconds."""

    def prepare(self, point):
        about = self.parameters(point)
        self.records = about["bytes"] // about["record.bytes"]
        for broker in self.brokers.values():
            self.world.fill(broker, KEPT, 1, self.records, about["record.bytes"])
            with self.world.admin(broker) as admin:
                admin.create(WRITTEN, PARTITIONS)

    def measure(self, contender, point):
        about, broker = self.parameters(point), self.brokers[contender.broker]
        common = {"record.bytes": about["record.bytes"], "seconds": about["seconds"], "watch": broker.pid, "set.bootstrap.servers": broker.address}
        (written,), (_, read) = self.world.drivers(
            (contender.driver, "produce", {"topic": WRITTEN, **common, **settings.words(contender.settings)}),
            (contender.driver, "consume", {"topic": KEPT, "records": self.records, "readers": about["readers"], **common, **contender.words,
                                           **settings.words(contender.reader_settings)}))
        with self.world.admin(broker) as admin:
            admin.forget(WRITTEN, PARTITIONS)
        return {"metrics": {
            WRITE.name: written["bytes"] / 1e6 / written["seconds"], READ.name: read["bytes"] / 1e6 / read["seconds"],
            BROKER.name: written["broker"]["cpu_seconds"] / written["seconds"], WRITER.name: written["client"]["cpu_seconds"] / written["seconds"],
            READERS.name: read["client"]["cpu_seconds"] / read["seconds"]}, "detail": {"path": read["path"], "library": read["library"]}}

    def clean(self, point):
        for broker in self.brokers.values():
            with self.world.admin(broker) as admin:
                admin.delete(KEPT)
                admin.delete(WRITTEN)


BENCHMARKS = (
    Benchmark(
        name="mixed",
        question="What do readers take from a writer, and a writer from readers?",
        workload="One writer of 1 KiB records at full speed, acks=all, for five seconds beside 1 and 8 readers of another topic of 64 MiB.",
        run=Mixed,
        axis=Axis("readers", "", (Point("1", 1, {"readers": 1}, quick=True), Point("8", 8, {"readers": 8})), logarithmic=False),
        contenders=contenders.WRITE_AND_READ,
        metrics=(WRITE, READ, BROKER, WRITER, READERS),
        parameters={"record.bytes": 1024, "bytes": 64 * MIB, "seconds": 5},
        quick={"bytes": 8 * MIB, "seconds": 1},
        shared_settings=settings.APACHE_JVM + settings.FILL + settings.SMALL_SEGMENTS,
        plots=(Plot("write_mb_s", "Written"), Plot("read_mb_s", "Read, all readers", True), Plot("broker_cpu_share", "Broker CPU")),
        seconds=360,
    ),
)

"""Beside what came before logs: events that a Flume agent writes into HDFS, read back from there."""

import dataclasses

import contenders
import metrics
import settings
from declare import LESS, MORE, Axis, Benchmark, Contender, Metric, Plot, Point, Workload
from workloads import latency

BATCH = 1000 * 1024  # whole batches of the sink: for company it would wait three seconds at the end
TOPIC = "events"
SENDERS = 4  # an Avro call is answered before the next one begins; several machines send in turn


def _both(name, title, unit, better, what):
    return tuple(Metric(f"{verb}_{name}", f"{title}, {told}", unit, better, what) for verb, told in (("write", "written"), ("read", "read back")))


MB_S = _both("mb_s", "throughput", "MB/s", MORE, "bytes of record values a second; written: until all can be read, HDFS's open file included")
RECORDS_S = _both("records_s", "records", "1/s", MORE, "records a second")
SERVER_CPU = _both("server_cpu_s_gb", "servers' CPU", "s/GB", LESS, "the broker's, or those of NameNode, DataNode and agent together")
CLIENT_CPU = _both("client_cpu_s_gb", "client CPU", "s/GB", LESS, "of the process that sends, or reads")


def _found(verb, line):
    gb = line["bytes"] / 1e9
    values = (gb * 1000 / line["seconds"], line["records"] / line["seconds"], line["broker"]["cpu_seconds"] / gb, line["client"]["cpu_seconds"] / gb)
    return {f"{verb}_{metric[0].name.partition('_')[2]}": value for metric, value in zip((MB_S, RECORDS_S, SERVER_CPU, CLIENT_CPU), values)}


def _hdfs_words(server, contender):
    return {"namenode": server.address, "agent": server.agent, "watch": ",".join(map(str, server.pids)), **settings.words(contender.settings)}


class Bulk(Workload):
    """Each round writes everything anew and reads it twice, of which the second pass counts, as in `consume-hot`."""

    def measure(self, contender, point):
        about, server = self.parameters(point), self.brokers[contender.broker]
        records = about["bytes"] // about["record.bytes"]
        size = {"records": records, "record.bytes": about["record.bytes"]}
        if contender.broker == "hdfs-flume":
            wrote, *read = self.world.driver(contender.driver, "bulk", {
                **size, "warm.records": about["warm.records"], "senders": SENDERS, "passes": 2, **_hdfs_words(server, contender)})
        else:
            with self.world.admin(server) as admin:
                admin.create(TOPIC, 1)
            size |= {"topic": TOPIC, "watch": server.pid, "set.bootstrap.servers": server.address}
            (wrote,) = self.world.driver(contender.driver, "produce", {**size, "warm.records": about["warm.records"], **settings.words(contender.settings)})
            read = self.world.driver(contender.driver, "consume", {**size, **contender.words, **settings.words(contender.reader_settings)})
            with self.world.admin(server) as admin:
                admin.delete(TOPIC)
        return {"metrics": _found("write", wrote) | _found("read", read[-1]), "detail": metrics.detail_of(read[-1])}


CLOSED = Metric("closed_p50_s", "until its file is closed, median", "s", LESS,
                "end to end to a program that reads closed files alone, as jobs over a folder do; the sink's roll interval is what it waits for")


class Prompt(latency.Latency):
    def open(self):
        Workload.open(self)
        for which, broker in self.brokers.items():
            if which == "ours":
                with self.world.admin(broker) as admin:
                    admin.create(latency.TOPIC, 1)

    def _words(self, contender, rate, seconds, record_bytes):
        if contender.broker != "hdfs-flume":
            return super()._words(contender, rate, seconds, record_bytes)
        return {"rate": rate, "seconds": seconds, "record.bytes": record_bytes, "warm.records": rate * WARM_SECONDS, "poll.ms": POLL_MS,
                **_hdfs_words(self.brokers["hdfs-flume"], contender)}

    def more(self, line):
        return {CLOSED.name: line[CLOSED.name]} if CLOSED.name in line else {}


POLL_MS, WARM_SECONDS = 2, 3  # an open file's reader has to open it anew to see more

FLUME = Contender("HDFS with Flume", "Flume's client to an agent (Avro source, memory channel, HDFS sink); HDFS's client reads, CRC checked",
                  broker="hdfs-flume", driver="hdfs-flume", settings=settings.FLUME_SENDER)
BULK = tuple(dataclasses.replace(contenders.WRITE_OURS, name=read.name, what=f"{contenders.WRITE_OURS.what}; {read.what}", words=read.words,
                                 reader_settings=read.settings) for read in (contenders.ONE_SIDED, contenders.OUR_TCP))

BENCHMARKS = (
    Benchmark(
        name="hdfs-flume",
        question="How much does HDFS take in through Flume, and give back?",
        workload="256,000 records of 1 KiB are written, until all can be read, then read twice. The agent's channel is memory, its fastest: what it holds dies with it, "
                 "which no acknowledged record of ours does. HDFS has one replica, and reads go over loopback: its jars have no native library for short cuts.",
        run=Bulk,
        axis=Axis("record size", "B", (Point("1 KiB", 1024, {"record.bytes": 1024}, quick=True),)),
        contenders=(*BULK, FLUME),
        metrics=(*MB_S, *SERVER_CPU, *CLIENT_CPU, *RECORDS_S),
        parameters={"bytes": 256 * BATCH, "warm.records": 50_000},
        quick={"bytes": 8 * BATCH, "warm.records": 1000},
        shared_settings=settings.SMALL_SEGMENTS + settings.HDFS_FLUME_JVM + settings.FLUME_FAST,
        plots=(Plot("write_mb_s", "Throughput, written", True), Plot("read_mb_s", "Throughput, read back", True), Plot("write_server_cpu_s_gb", "Servers' CPU a GB written", True)),
        seconds=180,
    ),
    Benchmark(
        name="hdfs-flume-latency",
        question="And how long until an event can be read there?",
        workload="As latency, 100 and 1,000 records a second. HDFS's reader looks into the open file every 2 ms; it sees what the sink has flushed.",
        run=Prompt,
        axis=Axis("records a second", "1/s", (Point("100/s", 100, {"rate": 100}), Point("1,000/s", 1000, {"rate": 1000}, quick=True))),
        contenders=(contenders.PROMPT_ONE_SIDED, contenders.PROMPT_TCP, FLUME),
        metrics=(latency.METRICS[0], latency.METRICS[2], CLOSED, latency.METRICS[1], *latency.METRICS[3:]),
        parameters={"record.bytes": 1024, "seconds": 10},
        quick={"seconds": 1},
        shared_settings=settings.SMALL_SEGMENTS + settings.HDFS_FLUME_JVM + settings.FLUME_PROMPT,
        plots=(Plot("p50_us", "Median", True), Plot("p999_us", "99.9th percentile", True)),
        seconds=600,
    ),
)

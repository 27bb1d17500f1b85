"""Throughput a broker CPU second, ours against Apache Kafka, by Apache's own perf tools. See bench/README.md."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import brokers

KAFKA_RUN = brokers.PEERS / "kafka-run"
PRODUCED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency.*?"
                      r"(\d+) ms 99th")


@dataclasses.dataclass(frozen=True)
class Case:
    record_bytes: int
    acks: str
    codec: str
    records: int
    producer: tuple = ()

    @property
    def name(self):
        extra = "".join(f" {setting}" for setting in self.producer)
        return f"{self.record_bytes} B acks={self.acks} {self.codec}{extra}"


# The producer's defaults but for what a case names: batch.size 16 KiB, linger.ms 5, 5 requests in flight, idempotent with
# acks=all. The last case is how a site that wants throughput configures it.
CASES = [
    Case(100, "1", "none", 3_000_000),
    Case(100, "all", "lz4", 3_000_000),
    Case(1024, "all", "none", 1_000_000),
    Case(1024, "1", "lz4", 1_000_000),
    Case(1024, "all", "none", 1_000_000, ("batch.size=262144", "linger.ms=20")),
]
QUICK = [0, 2, 4]


def say(text):
    print(f"\033[1m==>\033[0m {text}" if sys.stderr.isatty() else f"==> {text}", file=sys.stderr, flush=True)


def tool(name, *arguments):
    environment = dict(os.environ, KAFKA_HEAP="512m")
    done = subprocess.run([KAFKA_RUN, name, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{name} ended with status {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def create_topic(broker, topic, partitions):
    tool("kafka-topics", "--bootstrap-server", broker.address, "--create", "--topic", topic, "--partitions", str(partitions),
         "--replication-factor", "1")


def forget_records(broker, topic, partitions):
    """The log starts at its end: as retention does, which keeps a broker that has run for a while at one size."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as offsets:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": index, "offset": -1} for index in range(partitions)]}, offsets)
        offsets.flush()
        out = tool("kafka-delete-records", "--bootstrap-server", broker.address, "--offset-json-file", offsets.name)
    if out.count("low_watermark") != partitions:
        sys.exit(f"{broker.name}: not every partition's records were deleted:\n{out[-2000:]}")


def delete_topic(broker, topic):
    tool("kafka-topics", "--bootstrap-server", broker.address, "--delete", "--topic", topic)


def quiet(broker, limit_s=20):
    """Waits until the broker does nothing, so that what one round left behind is not counted in the next."""
    deadline = time.monotonic() + limit_s
    before = broker.cpu_seconds()
    while time.monotonic() < deadline:
        time.sleep(1)
        now = broker.cpu_seconds()
        if now - before <= 0.03:
            return
        before = now


def produce(broker, case, topic, records):
    settings = [f"acks={case.acks}", f"compression.type={case.codec}", *case.producer]
    quiet(broker)
    before = broker.cpu_seconds()
    out = tool("kafka-producer-perf-test", "--bootstrap-server", broker.address, "--topic", topic, "--num-records", str(records),
               "--record-size", str(case.record_bytes), "--throughput", "-1", "--command-property", *settings)
    # What was acknowledged may still be flushed or cleaned up: it is the producer's doing and counts.
    cpu = broker.cpu_seconds() - before
    last = [found for line in out.splitlines() if (found := PRODUCED.search(line))][-1]
    if int(last[1]) != records:
        sys.exit(f"{broker.name}: {last[1]} of {records} records were acknowledged:\n{out[-2000:]}")
    mb = records * case.record_bytes / 1e6
    return {"records_s": float(last[2]), "mb_s": float(last[2]) * case.record_bytes / 1e6, "cpu_s": cpu, "mb_cpu_s": mb / max(cpu, 0.01),
            "latency_avg_ms": float(last[4]), "latency_p99_ms": float(last[6])}


def consume(broker, case, topic, records, round_number):
    quiet(broker)
    before = broker.cpu_seconds()
    out = tool("kafka-consumer-perf-test", "--bootstrap-server", broker.address, "--topic", topic, "--num-records", str(records),
               "--group", f"perf-{topic}-{round_number}", "--timeout", "60000", "--hide-header")
    cpu = broker.cpu_seconds() - before
    row = [line for line in out.splitlines() if line.count(",") >= 8][-1].split(", ")
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, MB/s while fetching, records/s while fetching
    if int(row[4]) < records:
        sys.exit(f"{broker.name}: {row[4]} of {records} records were read:\n{out[-2000:]}")
    mb = int(row[4]) * case.record_bytes / 1e6
    return {"records_s": float(row[9]), "mb_s": float(row[9]) * case.record_bytes / 1e6, "cpu_s": cpu, "mb_cpu_s": mb / max(cpu, 0.01)}


def warm_up(broker, cases, partitions, records):
    """The peer is a JVM: it is measured after its hot code has been compiled, with every kind of request that follows."""
    for case in cases[:1] + cases[-1:]:
        topic = f"warm-{case.record_bytes}-{len(case.producer)}"
        create_topic(broker, topic, partitions)
        produce(broker, case, topic, records)
        consume(broker, case, topic, records, 0)
        delete_topic(broker, topic)


def measure(running, cases, partitions, scale, rounds, warm_records):
    """Every round of every case on one broker and at once on the other, so that a busy machine is busy for both."""
    for broker in running.values():
        say(f"{broker.name}: warm-up")
        warm_up(broker, cases, partitions, warm_records)
    results = []
    for number, case in enumerate(cases):
        records = int(case.records * scale)
        tries = {(kind, who): [] for kind in ("produce", "fetch") for who in running}
        topic = f"perf-{number}"
        for broker in running.values():
            create_topic(broker, topic, partitions)
        for turn in range(rounds + 1):
            for who, broker in running.items():
                say(f"{case.name}, {records:,} records, round {turn} of {rounds}: {broker.name}")
                made = produce(broker, case, topic, records)
                read = consume(broker, case, topic, records, turn)
                forget_records(broker, topic, partitions)
                if turn == 0:  # memory and files come to the size at which they stay
                    continue
                tries["produce", who].append(made)
                tries["fetch", who].append(read)
        for broker in running.values():
            delete_topic(broker, topic)
        for kind in ("produce", "fetch"):
            row = {"kind": kind, "case": case.name, "records": records}
            for who in running:
                # The median round by what is compared.
                rows = sorted(tries[kind, who], key=lambda one: one["mb_cpu_s"])
                row[who] = {**rows[len(rows) // 2], "mb_cpu_s_all": [round(one["mb_cpu_s"], 1) for one in rows]}
            if "theirs" in row:
                row["ratio"] = row["ours"]["mb_cpu_s"] / row["theirs"]["mb_cpu_s"]
            results.append(row)
    return results


def start_to_first_produce(program, folder, rounds):
    """Milliseconds from the start of the process: until it serves, and until a first record is acknowledged (acks=all, in a
    topic that is created on the way)."""
    serves, produced = [], []
    batch = brokers.one_record_batch(b"x" * 100)
    for number in range(rounds):
        began = time.monotonic()
        broker = brokers.Ours(program, folder / f"start-{number}", 1).start()
        ready = time.monotonic()
        wire = brokers.Wire(broker.address)
        errors = wire.create_topic("first"), wire.produce("first", batch)
        done = time.monotonic()
        broker.stop()
        if any(errors):
            sys.exit(f"the first produce was refused: error codes {errors}")
        serves.append((ready - began) * 1000)
        produced.append((done - began) * 1000)
    return {"serves_ms": statistics.median(serves), "first_produce_ms": statistics.median(produced), "first_produce_max_ms": max(produced)}


def idle_memory(program, folder):
    """Of a broker that was just started and served one record."""
    broker = brokers.Ours(program, folder / "idle", 1).start()
    wire = brokers.Wire(broker.address)
    wire.create_topic("one")
    wire.produce("one", brokers.one_record_batch(b"x" * 100))
    time.sleep(2)
    found = broker.memory_mib()
    before = broker.cpu_seconds()
    time.sleep(5)
    cpu = broker.cpu_seconds() - before
    broker.stop()
    return {"anon_mib": found["RssAnon"], "file_mib": found["RssFile"], "arena_mib": found["RssShmem"],
            "without_arena_mib": found["VmRSS"] - found["RssShmem"], "idle_cpu_ms_per_s": cpu / 5 * 1000}


def table(report):
    rows = [["what", "case", "records/s ours", "theirs", "MB/s ours", "theirs", "broker CPU s ours", "theirs", "MB/CPU s ours", "theirs",
             "ratio"]]
    for row in report["results"]:
        ours, theirs = row["ours"], row["theirs"]
        rows.append([row["kind"], row["case"], f"{ours['records_s']:,.0f}", f"{theirs['records_s']:,.0f}", f"{ours['mb_s']:.0f}",
                     f"{theirs['mb_s']:.0f}", f"{ours['cpu_s']:.2f}", f"{theirs['cpu_s']:.2f}", f"{ours['mb_cpu_s']:.0f}",
                     f"{theirs['mb_cpu_s']:.0f}", f"{row['ratio']:.2f}"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [text.ljust(widths[i]) if i < 2 else text.rjust(widths[i]) for i, text in enumerate(row)]
        lines.append("| " + " | ".join(cells) + " |")
        if number == 0:
            lines.append("|" + "|".join("-" * (width + 1) + ("-" if i < 2 else ":") for i, width in enumerate(widths)) + "|")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="bench/kafka_vs_apache", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three cases, a fifth of the records, one round")
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout instead of the table")
    parser.add_argument("--cases", help="which, by number, as in 1,5: " + "; ".join(f"{i + 1} {case.name}" for i, case in enumerate(CASES)))
    parser.add_argument("--rounds", type=int, help="rounds a case; the median is told (default 3, with --quick 1)")
    parser.add_argument("--scale", type=float, help="times the records of each case (default 1, with --quick 0.2)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of each topic (default 4)")
    parser.add_argument("--broker", default=str(brokers.ROOT / "build/release/bin/ciuic-broker"), help="our broker (default: build/release)")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="setting for both brokers; may be repeated")
    parser.add_argument("--ours-only", action="store_true", help="no peer and no ratio: for profiling and before/after")
    parser.add_argument("--folder", help="where the logs go (default: a temporary folder that is removed)")
    arguments = parser.parse_args()
    if not os.access(arguments.broker, os.X_OK):
        sys.exit(f"{arguments.broker} is missing; run tools/build first")

    cases = [CASES[i] for i in QUICK] if arguments.quick else CASES
    if arguments.cases:
        cases = [CASES[int(number) - 1] for number in arguments.cases.split(",")]
    # Small segments, looked at often: deleted records go between rounds.
    settings = ["log.segment.bytes=134217728", "log.retention.check.interval.ms=2000", "log.segment.delete.delay.ms=1000", *arguments.override]
    scale = arguments.scale or (0.2 if arguments.quick else 1.0)
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    warm_records = 300_000 if arguments.quick else 500_000
    folder = pathlib.Path(arguments.folder or tempfile.mkdtemp(prefix="kafka-vs-apache-"))
    folder.mkdir(parents=True, exist_ok=True)
    running = {}
    try:
        try:
            running["ours"] = brokers.Ours(arguments.broker, folder / "ours", arguments.partitions, settings).start()
            if not arguments.ours_only:
                running["theirs"] = brokers.Apache(folder / "apache", arguments.partitions, settings).start()
            results = measure(running, cases, arguments.partitions, scale, rounds, warm_records)
        finally:
            for broker in running.values():
                broker.stop()
        say("ciuickafka: start to first produce, idle memory")
        startup = start_to_first_produce(arguments.broker, folder, 5 if arguments.quick else 15)
        idle = idle_memory(arguments.broker, folder)
    finally:
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)

    report = {"date": datetime.date.today().isoformat(), "machine": brokers.machine(), "peer": f"Apache Kafka {brokers.apache_version()}",
              "rounds": rounds, "partitions": arguments.partitions, "results": results, "start": startup, "idle": idle}
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{report['date']}, {report['machine']}, peer {report['peer']}, {rounds} round(s), {arguments.partitions} partitions\n")
    if arguments.ours_only:
        for row in results:
            ours = row["ours"]
            print(f"{row['kind']:8} {row['case']:44} {ours['records_s']:>12,.0f} records/s {ours['mb_s']:6.0f} MB/s "
                  f"{ours['cpu_s']:6.2f} CPU s {ours['mb_cpu_s']:6.0f} MB/CPU s {ours['mb_cpu_s_all']}")
    else:
        print(table(report))
        print(f"\nsmallest ratio: {min(row['ratio'] for row in results):.2f} (the bar: 2)")
    print(f"start: serves after {startup['serves_ms']:.0f} ms, first record acknowledged after {startup['first_produce_ms']:.0f} ms "
          f"(slowest {startup['first_produce_max_ms']:.0f} ms; the bar: 200)")
    print(f"idle: {idle['without_arena_mib']:.1f} MiB resident without the arena (heap and stacks {idle['anon_mib']:.1f}, program and "
          f"libraries {idle['file_mib']:.1f}; the bar: 50), arena {idle['arena_mib']:.1f} MiB, CPU {idle['idle_cpu_ms_per_s']:.1f} ms a second")


if __name__ == "__main__":
    main()

"""The main job: starts a broker, feeds the corpus, reads it back four ways, prints the table. See tools/quickstart."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from digest import combined

HERE = pathlib.Path(__file__).parent
TOPIC = "deepseek-training"
GROUP = "gpu-cluster-1"
PARTITIONS = 4


def say(text):
    print(f"\033[1m==>\033[0m {text}" if sys.stderr.isatty() else f"==> {text}", file=sys.stderr, flush=True)


class Broker:
    def __init__(self, program, folder):
        self.folder = folder
        self.log = open(folder / "broker.log", "w")
        port_file = folder / "port"
        self.process = subprocess.Popen(
            [program, "--port-file", str(port_file), "--override", f"log.dirs={folder}/logs", "--override",
             "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"num.partitions={PARTITIONS}"],
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        deadline = time.monotonic() + 10
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the broker did not start:\n{(folder / 'broker.log').read_text()}")
            time.sleep(0.01)
        self.address = f"127.0.0.1:{port_file.read_text().strip()}"

    def cpu_seconds(self):
        """By the scheduler's clock, to the nanosecond: /proc/PID/stat counts in steps of 10 ms, more than a read costs here."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def choose(corpus, limit):
    """Files in a fixed order until `limit` bytes (0: all)."""
    chosen, total = [], 0
    for folder, folders, names in os.walk(corpus):
        folders.sort()
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if path.suffix in (".c", ".h") and not path.is_symlink():
                chosen.append(str(path.relative_to(corpus)))
                total += path.stat().st_size
                if limit and total >= limit:
                    return chosen, total
    return chosen, total


def run_all(commands):
    """Runs processes side by side; each prints one JSON line."""
    running = [subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=HERE) for command in commands]
    results = []
    for process in running:
        out, _ = process.communicate(timeout=1800)
        if process.returncode != 0:
            for other in running:
                other.poll() is None and other.kill()
            sys.exit(f"{' '.join(process.args[1:3])} failed with status {process.returncode}")
        results.append(json.loads(out.splitlines()[-1]))
    return results


def measure(broker, name, commands):
    say(name)
    before, started = broker.cpu_seconds(), time.monotonic()
    results = run_all(commands)
    wall = time.monotonic() - started
    parts = {}
    for result in results:
        parts.update(result.get("parts", {}))
    paths = {result.get("path", "tcp") for result in results}
    return {"reader": name, "path": "/".join(sorted(paths)), "records": sum(r["records"] for r in results),
            "bytes": sum(r["bytes"] for r in results), "parts": parts, "wall": wall,
            "seconds": max(r["seconds"] for r in results), "cpu": broker.cpu_seconds() - before}


def table(rows):
    head = ("", "path", "records", "bytes", "digest", "seconds", "MB/s", "broker CPU s/GB")
    lines = [head]
    for row in rows:
        gigabytes = row["bytes"] / 1e9
        digest = combined(row["parts"])[:16] if row["parts"] else "-"
        lines.append((row["reader"], row["path"], f"{row['records']:,}", f"{row['bytes']:,}", digest, f"{row['seconds']:.3f}",
                      f"{row['bytes'] / 1e6 / row['seconds']:,.0f}", f"{row['cpu'] / gigabytes:.3f}"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for number, line in enumerate(lines):
        print("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()

    folder = pathlib.Path(tempfile.mkdtemp(prefix="ciuic-quickstart-"))
    broker = None
    kept = False
    status = 0
    try:
        files, total = choose(options.corpus, options.bytes)
        if not files:
            sys.exit(f"{options.corpus}: no .c or .h files there; name a folder of C sources with --corpus")
        say(f"corpus: {len(files):,} files, {total / 1e6:,.0f} MB of C sources")
        broker = Broker(options.broker, folder)
        say(f"broker: {broker.address}, log in {folder}/logs")

        shares = []
        producers = min(2, os.cpu_count() or 1)
        # A directory's files go to one producer, so that a key keeps its order.
        directories = sorted({str(pathlib.PurePath(name).parent) for name in files})
        owner = {directory: i % producers for i, directory in enumerate(directories)}
        for i in range(producers):
            share = folder / f"share-{i}"
            share.write_text("\n".join(name for name in files if owner[str(pathlib.PurePath(name).parent)] == i))
            shares.append(share)
        fed = measure(broker, "produce: kafka-python, snappy",
                      [["producers.py", broker.address, TOPIC, options.corpus, str(share)] for share in shares])

        from kafka import KafkaConsumer, TopicPartition
        probe = KafkaConsumer(bootstrap_servers=broker.address)
        ends = probe.end_offsets([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])
        probe.close()
        ends = {part.partition: end for part, end in ends.items()}
        if sum(ends.values()) != fed["records"]:
            sys.exit(f"{fed['records']} records were acknowledged, the log holds {sum(ends.values())}")
        ends = json.dumps(ends)

        ours = ["readers.py", "ciuic", broker.address, TOPIC]
        rows = [fed]
        rows.append(measure(broker, f"records: 2 × kafka-python, {GROUP}",
                            [["readers.py", "kafka-python", broker.address, TOPIC, GROUP, ends]] * 2))
        rows.append(measure(broker, "records: ciuickafka over TCP", [[*ours, "tcp", ends]]))
        rows.append(measure(broker, "records: ciuickafka one-sided", [[*ours, "rdma", ends]]))
        ours[1] = "ciuic-batches"
        rows.append(measure(broker, "batches: ciuickafka over TCP", [[*ours, "tcp", ends]]))
        rows.append(measure(broker, "batches: ciuickafka one-sided", [[*ours, "rdma", ends]]))

        print()
        table(rows)
        print("\nrecords: unpacked and digested in Python, which is most of the time. batches: as stored (snappy), checked, not unpacked;"
              "\ntheir bytes are those of the log, their digest is over the headers, whose CRC32C covers the rest (a producer"
              "\nhas none: offsets are the broker's). broker CPU: of all its threads, connecting included.")
        digests, headers = ({combined(row["parts"]) for row in kind} for kind in (rows[1:4], rows[4:]))
        counts = {row["records"] for row in rows}
        sizes = [{row["bytes"] for row in kind} for kind in (rows[:4], rows[4:])]
        print()
        if any(len(one) != 1 for one in (digests, headers, counts, *sizes)):
            print("the readers DISAGREE: see the digests, records and bytes above")
            sys.exit(1)
        print(f"all digests agree: {digests.pop()} (records), {headers.pop()[:16]} (batches)")
        if options.keep:
            kept = True
            program = pathlib.Path(options.broker).parent / "ciuic"
            print(f"\nthe broker runs on: {broker.address} (pid {broker.process.pid}, log {folder}/broker.log); any Kafka client may come\n"
                  f"  {program} topics list -b {broker.address}\n"
                  f"  {program} consume {TOPIC} -b {broker.address} -c 1 --path\n"
                  f"  {program} groups describe {GROUP} -b {broker.address}\n"
                  f"  PYTHONPATH=client/python python3 docs/examples/consume.py {broker.address} {TOPIC}\n"
                  f"stop it: kill {broker.process.pid}; then rm -r {folder}")
    finally:
        if broker is not None and not kept:
            status = broker.stop()
            log = (folder / "broker.log").read_text()
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
        if status != 0:
            sys.exit(f"the broker ended with status {status}; its log:\n{log[-2000:]}")


if __name__ == "__main__":
    main()

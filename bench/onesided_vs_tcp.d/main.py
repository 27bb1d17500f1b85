"""Fetch over TCP against one-sided reads: throughput, and broker CPU a GB. See bench/README.md."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "kafka_vs_apache.d"))
import brokers  # noqa: E402

# record bytes, codec, partitions
PASSES = ("first", "again")
CASES = [(1024, "none", 1), (1024, "none", 4), (100, "lz4", 1), (65536, "none", 1)]


def main():
    options = argparse.ArgumentParser(prog="bench/onesided_vs_tcp", description=__doc__)
    options.add_argument("--quick", action="store_true", help="64 MiB a case and one round")
    options.add_argument("--bytes", type=int, default=1 << 30, help="payload of a case (default 1 GiB)")
    options.add_argument("--rounds", type=int, default=5, help="a row is the median of so many (default 5)")
    options.add_argument("--cases", default=",".join(str(i + 1) for i in range(len(CASES))), help="which, by number (default: all)")
    options.add_argument("--broker", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker; may be repeated")
    options.add_argument("--client", action="append", default=[], metavar="KEY=VALUE", help="a setting of the reading client; may be repeated")
    options.add_argument("--json", action="store_true", help="one object a row instead of the table")
    options = options.parse_args()
    size, rounds = (64 << 20, 1) if options.quick else (options.bytes, options.rounds)
    programs = ROOT / "build" / "release" / "bench"
    # A second pass would begin behind a Fetch that waits at the end of the first.
    reading = dict(setting.split("=", 1) for setting in ("fetch.max.wait.ms=1", "fetch.max.bytes=52428800", "max.partition.fetch.bytes=8388608", *options.client))
    filling = {"batch.size": 262144, "linger.ms": 20, "max.request.size": 4194304}
    failed = False
    if not options.json:
        setting = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        print(f"{brokers.machine()}, {rounds} round(s), shmem_enabled: {setting.read_text().strip() if setting.exists() else 'not in this kernel'}\n")
        print("| case | path | MB/s | broker CPU s/GB | reader CPU s/GB | throughput ratio | broker CPU ratio |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ciuic-bench-") as folder:
        for number in (int(word) - 1 for word in options.cases.split(",")):
            record, codec, partitions = CASES[number]
            broker = brokers.Ours(ROOT / "build" / "release" / "bin" / "ciuic-broker", pathlib.Path(folder) / str(number), partitions, options.broker).start()

            def run(program, *workload, settings, **words):
                words |= {"topic": "bench"} | {"set." + key: value for key, value in settings.items()} | {"set.bootstrap.servers": broker.address}
                done = subprocess.run([programs / program, *workload, *(f"{key}={value}" for key, value in words.items())], stdout=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    sys.exit(f"{program} ended with status {done.returncode}")
                return [json.loads(line) for line in done.stdout.splitlines()]

            try:
                run("bench_client", "produce", settings={**filling, "compression.type": codec}, records=size // record, **{"record.bytes": record, "warm.records": 0})
                found = {(a_pass, transport): [] for a_pass in PASSES for transport in ("tcp", "rdma")}
                for _ in range(rounds):
                    for transport in ("tcp", "rdma"):
                        read = run("bench_client", "consume", settings={**reading, "transport": transport}, partitions=partitions, passes=len(PASSES),
                                   records=size // record, watch=broker.pid, **{"record.bytes": record})
                        for a_pass, result in zip(PASSES, read):
                            found[a_pass, transport].append(result)
                (same,) = run("bench_same_streams", settings=reading)
            finally:
                broker.stop()
            rows = {}
            for (a_pass, transport), results in found.items():
                gb = results[0]["delivered_bytes"] / 1e9
                rows[a_pass, transport] = {"case": f"{record} B {codec} x{partitions} {a_pass}",
                                   "path": results[0]["path"], "bytes": results[0]["delivered_bytes"], "records": results[0]["records"],
                                   "mb_s": statistics.median(each["delivered_bytes"] / 1e6 / each["seconds"] for each in results),
                                   "broker_cpu_s_gb": statistics.median(each["broker"]["cpu_seconds"] for each in results) / gb,
                                   "reader_cpu_s_gb": statistics.median(each["client"]["cpu_seconds"] for each in results) / gb}
            identical = same["different"] == same["alone"] == 0 and len({row["records"] for row in rows.values()}) == 1
            failed = failed or not identical
            for a_pass in PASSES:
                ours, theirs = rows[a_pass, "rdma"], rows[a_pass, "tcp"]
                ratio, cpu = ours["mb_s"] / theirs["mb_s"], ours["broker_cpu_s_gb"] / max(theirs["broker_cpu_s_gb"], 1e-9)
                if options.json:
                    print(json.dumps({"tcp": theirs, "onesided": ours, "throughput_ratio": ratio, "broker_cpu_ratio": cpu, "batches_compared": same}))
                    continue
                for row, tail in ((theirs, "| |"), (ours, f"{ratio:.1f} | {cpu:.1%} |")):
                    print(f"| {row['case']} | {row['path']} | {row['mb_s']:.0f} | {row['broker_cpu_s_gb']:.5f} | {row['reader_cpu_s_gb']:.3f} | {tail}")
            if options.json:
                continue
            print(f"| | {same['same']} batches compared: {'identical' if identical else 'NOT IDENTICAL'} | | | | | |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""READs of our verbs provider against perftest's ib_read_bw and ib_read_lat, in turn. See bench/README.md."""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "build" / "release" / "bench" / "verbs_reads"
SIZES = (65536, 1048576)
LATENCY_BYTES = 64


def words(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def perftest(program, options, server_device, client_device, server):
    """Its last line of figures: the first columns are bytes and iterations."""
    listener = subprocess.Popen([program, "-d", server_device, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for _ in range(100):
            time.sleep(0.1)
            done = subprocess.run([program, "-d", client_device, *options, server], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode == 0:
                rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\s*\d+\s+\d+\s", line)]
                return [float(word) for word in rows[-1]]
        sys.exit(f"{program} never connected:\n{done.stdout}")
    finally:
        listener.kill()
        listener.wait()


def main():
    options = argparse.ArgumentParser(prog="bench/verbs_vs_perftest", description=__doc__)
    options.add_argument("--listen", default=os.environ.get("RDMA_VM_ADDR1"), help="address of the broker's side")
    options.add_argument("--source", default=os.environ.get("RDMA_VM_ADDR0"), help="address of the reader's side")
    options.add_argument("--devices", default=f"{os.environ.get('RDMA_VM_DEV1')},{os.environ.get('RDMA_VM_DEV0')}", help="theirs and ours, for perftest")
    options.add_argument("--gid-index", default="1", help="perftest's -x")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--reads", type=int, default=400, help="READs of 64 KiB a round; a quarter of them of 1 MiB")
    options.add_argument("--json", action="store_true")
    options = options.parse_args()
    if not options.listen:
        sys.exit("no RDMA devices named: run inside tools/rdma-vm/run, or give --listen, --source and --devices")
    server_device, client_device = options.devices.split(",")
    serving = subprocess.Popen([OURS, "serve", options.listen], stdout=subprocess.PIPE, text=True)
    tokens = [serving.stdout.readline().split() for _ in range(64)]
    found = {}
    try:
        for number in range(options.rounds + 1):
            for size in SIZES:
                reads = options.reads if size == SIZES[0] else max(options.reads // 4, 20)
                ours = float(words([OURS, "bandwidth", *tokens.pop(), options.source, size, reads]))
                theirs = perftest("ib_read_bw", ["-s", str(size), "-n", str(reads), "-x", options.gid_index, "--report_gbits", "-F"], server_device, client_device, options.listen)
                if number > 0:  # the first is for warmth
                    found.setdefault(("bandwidth", size), []).append((ours, theirs[3] * 1000 / 8))
            ours = float(words([OURS, "latency", *tokens.pop(), options.source, LATENCY_BYTES, 2000]).split()[0])
            theirs = perftest("ib_read_lat", ["-s", str(LATENCY_BYTES), "-n", "2000", "-x", options.gid_index, "-F"], server_device, client_device, options.listen)
            if number > 0:
                found.setdefault(("latency", LATENCY_BYTES), []).append((ours, theirs[4]))
    finally:
        serving.kill()
    if not options.json:
        print("| what | bytes | ours | perftest | ratio |\n|---|---:|---:|---:|---:|")
    for (what, size), pairs in found.items():
        ours, theirs = (statistics.median(column) for column in zip(*pairs))
        if options.json:
            print(json.dumps({"what": what, "bytes": size, "ours": ours, "perftest": theirs, "ratio": ours / theirs, "rounds": pairs}))
        else:
            print(f"| {what} ({'MB/s' if what == 'bandwidth' else 'median us'}) | {size} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A reader that says nothing any more while its TCP connection stands, as when its host lost its power or it is frozen: what it held of
the broker's goes in a time that has nothing to do with TCP, and it finds back when it can. silent_reader.py BROKER CIUIC"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE = 10  # seconds: two leases, or a token's life where that is longer (docs/protocol.md)


def main():
    broker_program, ciuic = sys.argv[1:3]
    here, there = os.environ["RDMA_VM_ADDR0"], os.environ["RDMA_VM_ADDR1"]
    passed = failed = 0

    def expect(what, holds):
        nonlocal passed, failed
        passed, failed = passed + bool(holds), failed + (not holds)
        if not holds:
            print(f"FAILED: {what}")

    def within(seconds, holds):
        end = time.monotonic() + seconds
        while not holds() and time.monotonic() < end:
            time.sleep(0.05)
        return holds()

    def held():
        """Queue pairs of connections and registrations of the broker; the kernel names a thread where it says pid."""
        def count(kind):
            listed = json.loads(subprocess.run(["rdma", "-j", "resource", "show", kind], stdout=subprocess.PIPE, text=True, check=True).stdout)
            return sum(1 for one in listed if one["comm"] == "ciuic-broker" and one.get("type", "RC") == "RC")
        return count("qp"), count("mr")

    def wire(lossy):
        for end in ("rdma0", "rdma1"):
            words = ["add", "dev", end, "root", "netem", "loss", "100%"] if lossy else ["del", "dev", end, "root"]
            subprocess.run(["tc", "qdisc", *words], check=True)

    with tempfile.TemporaryDirectory() as folder:
        port_file, log, out = (pathlib.Path(folder) / name for name in ("port", "log", "out"))
        settings = [f"log.dirs={folder}/logs", "listeners=PLAINTEXT://127.0.0.1:0", f"onesided.listen={there}", "onesided.providers=verbs",
                    "onesided.lease.ms=1000"]
        words = [word for one in settings for word in ("--override", one)]
        broker = subprocess.Popen([broker_program, "--port-file", port_file, *words], stderr=log.open("w"))
        readers = []

        def read(*more, to):
            command = [ciuic, "consume", "t", "-b", f"127.0.0.1:{port_file.read_text().strip()}", "--transport", "rdma", "-X", f"onesided.source={here}", *more]
            readers.append(subprocess.Popen(command, stdout=to))
            return readers[-1]

        def produce(count):
            subprocess.run([ciuic, "produce", "t", "-b", f"127.0.0.1:{port_file.read_text().strip()}"], input="word\n" * count, text=True,
                           check=True, stdout=subprocess.DEVNULL)

        try:
            while not port_file.exists():
                time.sleep(0.01)
            subprocess.run([ciuic, "topics", "create", "t", "-b", f"127.0.0.1:{port_file.read_text().strip()}"], check=True, stdout=subprocess.DEVNULL)
            lines = 0
            for cut in (False, True):
                produce(1000)
                lines += 1000
                reader = read(to=out.open("w"))
                expect("it reads", within(30, lambda: out.read_bytes().count(b"\n") == lines))
                queue_pairs, regions = held()
                expect(f"one connection and what was granted to it: {queue_pairs}, {regions}", queue_pairs == 1 and regions >= 2)
                reader.send_signal(signal.SIGSTOP)
                if cut:
                    wire(lossy=True)
                began = time.monotonic()
                if not cut:
                    other = read("--exit", to=subprocess.PIPE)
                    expect("another reads meanwhile", other.communicate(timeout=30)[0].count(b"\n") == lines)
                gone = within(PATIENCE + 15, lambda: held() == (0, 0))
                took = time.monotonic() - began
                expect(f"after {took:.1f} s the broker holds {held()} for a reader that says nothing", gone)
                expect(f"it is waited for: {took:.1f} s", took > PATIENCE - 1)
                expect("the log says why", log.read_text().count("reason=silent") == (2 if cut else 1))
                print(f"{'host without power' if cut else 'frozen'}: nothing is held after {took:.1f} s")
                if cut:
                    wire(lossy=False)
                reader.send_signal(signal.SIGCONT)
                produce(500)
                lines += 500
                expect("it is back, and has every record once", within(30, lambda: out.read_bytes().count(b"\n") >= lines)
                       and out.read_bytes().count(b"\n") == lines)
                expect("one-sidedly", within(10, lambda: held()[0] == 1))
                reader.send_signal(signal.SIGINT)
                reader.wait(30)
                expect("what it held goes with it", within(10, lambda: held() == (0, 0)))
        finally:
            for one in [*readers, broker]:
                one.kill()
                one.send_signal(signal.SIGCONT)
                one.wait()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

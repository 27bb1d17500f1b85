"""Starts and stops a broker, ours or Apache Kafka's, on loopback in a folder that goes away; by pid, never by name."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What a sanitizer says, whether it ends the program (asan), changes its exit status (tsan), or was killed before it could.
SANITIZER = re.compile(r"(ERROR|WARNING): \w+Sanitizer|: runtime error: ")
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.append(os.path.join(ROOT, "tools", "peers"))
from free_port import free_port  # noqa: E402


class Ours:
    def __init__(self, program, folder, settings=None, port=None):
        if not program or not os.path.exists(program):
            raise SystemExit(f"no ciuic-broker at {program}; build it, or give CIUIC_BROKER")
        self.program, self.folder, self.settings, self.process = program, folder, dict(settings or {}), None
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.log = os.path.join(folder, "broker.log")

    def start(self, seconds=30):
        ready = os.path.join(self.folder, "port")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ready)
        # Two threads even where the default is one: what crosses from shard to shard is to be tested on small machines too.
        keys = {"log.dirs": os.path.join(self.folder, "logs"), "num.network.threads": 2, "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 0, "log.memory.bytes": 268435456, **self.settings}
        command = [self.program, "--port-file", ready]
        for key, value in keys.items():
            command += ["--override", f"{key}={value}"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        end = time.monotonic() + seconds
        while not os.path.exists(ready):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"ciuic-broker did not start:\n{self.tail()}")
            time.sleep(0.002)
        return self

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=30):
        """The exit status. Raises where the broker does not end, or a sanitizer has found something in any of its lives."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"ciuic-broker did not stop in {seconds} s:\n{self.tail()}") from None
        with open(self.log, encoding="utf-8", errors="replace") as log:
            said = log.read()
        if found := SANITIZER.search(said):
            raise RuntimeError("the sanitizer's report:\n" + said[said.rfind("\n", 0, found.start()) + 1:][:8000])
        return self.process.returncode

    def pid(self):
        return self.process.pid

    def tail(self, lines=30):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "\n".join(log.read().splitlines()[-lines:])


class Apache:
    def __init__(self, folder, settings=None):
        self.folder, self.settings, self.log = folder, dict(settings or {}), os.path.join(folder, "server.log")
        self.script = os.path.join(ROOT, "tools", "peers", "apache-broker")

    def start(self):
        words = [f"{key}={value}" for key, value in {"offsets.topic.num.partitions": 5, **self.settings}.items()]
        self.address = subprocess.run([self.script, "start", self.folder, *words], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
        return self

    def pid(self):
        return int(open(os.path.join(self.folder, "pid"), encoding="utf-8").read())

    def alive(self):
        return os.path.exists(f"/proc/{self.pid()}")

    def stop(self):
        subprocess.run([self.script, "stop", self.folder], check=True)

    def kill(self):
        subprocess.run([self.script, "kill", self.folder], check=True)

    def tail(self, lines=30):
        return "\n".join(open(self.log, encoding="utf-8", errors="replace").read().splitlines()[-lines:])


class Elsewhere:
    def __init__(self, address):
        self.address = address

    def alive(self):
        return True

    def tail(self):
        return ""


@contextlib.contextmanager
def running(which="ours", program=None, address=None, settings=None):
    which = os.environ.get("CIUIC_AGAINST", which)  # `apache` proves a client test right
    if address:
        yield Elsewhere(address)
        return
    folder = tempfile.mkdtemp(prefix="ciuic-test-")
    broker = Ours(program or os.environ.get("CIUIC_BROKER"), folder, settings) if which == "ours" else Apache(folder, settings)
    try:
        yield broker.start()
    finally:
        alive = which == "ours" and broker.process is not None and broker.alive()
        try:
            if broker.stop() and alive:
                raise RuntimeError(f"the broker's stop was not clean:\n{broker.tail()}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

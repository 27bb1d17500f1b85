"""Everything that a run starts: brokers, drivers, perf. All of it ends with the World, by pid, whatever ends the run."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import paths
import settings as reasons

sys.path.insert(0, str(paths.ROOT / "bench" / "kafka_vs_apache.d"))
import brokers  # noqa: E402
import wire  # noqa: E402

PERF_EVENT = "raw_syscalls:sys_enter"


class Failed(RuntimeError):
    """A benchmark could not be measured; the text says which program, and what it said."""


class Interrupted(KeyboardInterrupt):
    """end() asked for it; the text says why. No benchmark's failure, so no `Exception`."""


class World:
    """A signal handler calls end() and returns: what waits is woken by the end of what it waits for, and check() raises
    where nothing is half done. A handler that raised would do so between a process's start and the note of its pid, or
    in the library's wait for one, which then holds its lock for ever."""

    def __init__(self, build, parent=None):
        """Logs go into a new folder in `parent` (default: where temporary files go), which is removed at the end."""
        self.build = pathlib.Path(build)
        if parent:
            pathlib.Path(parent).mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ciuic-bench-", dir=parent))
        self.running = []  # brokers
        self.children = []  # drivers and perf
        self.made = 0
        self.why = None  # the run is to end
        self.counts_syscalls = self._perf_works()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in list(self.children):
            self._end(child)
        for broker in list(self.running):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self.stop(broker)
        shutil.rmtree(self.folder, ignore_errors=True)

    # The end before the end.
    def end(self, why):
        """For a signal handler of the main thread: drivers and starts under way end now, and the next check() raises."""
        self.why = self.why or why
        for child in list(self.children):
            self._signal(child)
        for broker in list(self.running):
            broker.interrupt()

    def check(self):
        """Raises Interrupted once end() was called."""
        if self.why:
            raise Interrupted(self.why)

    def sleep(self, seconds):
        """Or until end() is called, which it raises."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.1))

    # Brokers.
    def new_folder(self, name):
        self.made += 1
        return self.folder / f"{self.made}-{name}"

    def broker(self, which, settings=(), folder=None, partitions=1):
        """A started broker, "ours", "apache" or "hdfs-flume", with the settings that are meant for it. Raises Failed."""
        folder = folder or self.new_folder(which)
        mine = {"ours": ("our broker", "both brokers"), "apache": ("Apache's broker", "both brokers"), "hdfs-flume": ("HDFS", "Flume's agent")}[which]
        words = [f"{setting.key}={setting.value}" for setting in settings if setting.who in mine]
        if which == "ours":
            broker = brokers.Ours(self.build / "bin" / "ciuic-broker", folder, partitions, words)
        elif which == "hdfs-flume":
            broker = brokers.HdfsFlume(folder, words, {setting.key: setting.value for setting in reasons.HDFS_FLUME_JVM})
        else:
            environment = {setting.key: setting.value for setting in reasons.APACHE_JVM}
            broker = brokers.Apache(folder, partitions, words, environment)
        self.running.append(broker)  # before it runs, for end()
        self.check()
        try:
            return broker.start()
        except SystemExit as error:
            self.check()
            raise Failed(str(error)) from None

    def stop(self, broker):
        if broker in self.running:
            self.running.remove(broker)
            broker.stop()

    def kill(self, broker):
        """kill -9, as a crash."""
        self.running.remove(broker)
        broker.kill()

    # Drivers.
    def driver(self, program, workload, words, counting=None):
        """Runs a program of bench/drivers to its end: its lines. With `counting` (a broker) also the system calls of both:
        (lines, {"client": n, "broker": n})."""
        command = self._command(program, workload, words)
        if counting is None:
            return self._lines(self._begin(command))
        ours, theirs = self.folder / "perf-client", self.folder / "perf-broker"
        watching = self._start(["perf", "stat", "-x,", "-e", PERF_EVENT, "-o", str(theirs), "-p", str(counting.pid)])
        self.sleep(0.3)  # until it has attached
        try:
            lines = self._lines(self._begin(["perf", "stat", "-x,", "-e", PERF_EVENT, "-o", str(ours), "--", *command]))
        finally:
            watching.send_signal(signal.SIGINT)
            watching.wait(10)
            self.children.remove(watching)
        return lines, {"client": _perf_count(ours), "broker": _perf_count(theirs)}

    def drivers(self, *calls):
        """Several at once, each (program, workload, words): the lines of each."""
        return [self._lines(child) for child in [self._begin(self._command(*call)) for call in calls]]

    def fill(self, broker, topic, partitions, records, record_bytes, **words):
        """A new topic of so many records; by our producer on either broker, so that the bytes are the same."""
        with self.admin(broker) as admin:
            admin.create(topic, partitions)
        self.driver("bench_client", "produce", {
            "topic": topic, "records": records, "record.bytes": record_bytes, "warm.records": 0,
            **reasons.words(reasons.FILL), "set.bootstrap.servers": broker.address, **words})

    def admin(self, broker):
        return wire.Admin(broker.address)

    def _start(self, command, **streams):
        # A session of its own: Ctrl-C on the terminal reaches us alone, and we end what we started.
        child = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, **streams)
        self.children.append(child)
        if self.why:  # while it was made
            self._signal(child)
        return child

    def _command(self, program, workload, words):
        if program == "hdfs-flume":  # Java; tools/peers/setup compiled it
            return [str(brokers.PEERS / program), "drive", workload, *(f"{key}={value}" for key, value in words.items())]
        path = self.build / "bench" / program
        if not path.exists():
            raise Failed(f"{path} is missing: bench/ciuic-bench builds it (librdkafka-dev is needed for bench_librdkafka)")
        return [str(path), workload, *(f"{key}={value}" for key, value in words.items())]

    def _begin(self, command):
        return self._start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _lines(self, child):
        out, said = child.communicate()
        self.children.remove(child)
        self.check()
        if child.returncode != 0:
            raise Failed(f"{pathlib.Path(child.args[0]).name} {' '.join(child.args[1:])}: status {child.returncode}: {said.strip()[-2000:]}")
        return [json.loads(line) for line in out.splitlines()]

    @staticmethod
    def _signal(child):
        """perf passes nothing on: the group is ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def _end(self, child):
        self._signal(child)
        child.wait()
        for stream in filter(None, (child.stdout, child.stderr)):
            stream.close()
        if child in self.children:
            self.children.remove(child)

    @staticmethod
    def _perf_works():
        try:
            return subprocess.run(["perf", "stat", "-e", PERF_EVENT, "true"], capture_output=True, timeout=20, check=False).returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False


def _perf_count(path):
    for line in path.read_text().splitlines():
        if PERF_EVENT in line and line.split(",")[0].isdigit():
            return int(line.split(",")[0])
    raise Failed(f"perf counted nothing: {path.read_text()[-500:]}")


def drop_page_cache(folder):
    """The kernel forgets the pages of every file there: what is read next comes from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_RDONLY)
                try:
                    os.fdatasync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)

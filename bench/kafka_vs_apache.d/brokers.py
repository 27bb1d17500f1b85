"""The two brokers, each started in a folder of its own, and what /proc says of them."""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "tools" / "peers"


def machine():
    model = "?"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    return f"{os.cpu_count()} cores ({model}), loopback"


class Process:
    """A broker, ours or theirs: start(), which returns it; stop() or kill(), in any state; what is read while it runs.
    interrupt() makes a start under way fail at once, and may be called from a signal handler."""

    pid = 0
    address = ""

    def cpu_seconds(self):
        """User and system time of all its threads, ended ones too: the sum in /proc/PID/stat, not rounded to its ticks."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the kernel's name for another process's CPUCLOCK_SCHED

    def memory_mib(self):
        """Resident memory: anonymous (heap, stacks), file (program, libraries), shmem (the arena of ours), their sum."""
        found = {}
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("RssAnon", "RssFile", "RssShmem", "VmRSS"):
                found[name] = int(value.split()[0]) / 1024
        return found


class Ours(Process):
    name = "ciuickafka"

    def __init__(self, program, folder, partitions, settings=()):
        self.folder, self.process, self.port_file = folder, None, folder / "port"
        self.starting = False
        self.command = [str(program), "--port-file", str(self.port_file)]
        for setting in (f"log.dirs={folder}/logs", "listeners=PLAINTEXT://127.0.0.1:0", f"num.partitions={partitions}", *settings):
            self.command += ["--override", setting]

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port_file.unlink(missing_ok=True)
        with open(self.folder / "broker.log", "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.pid, self.starting = self.process.pid, True
        deadline = time.monotonic() + 120  # a long log is recovered first
        try:
            while not self.port_file.exists():
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the broker did not start:\n{(self.folder / 'broker.log').read_text()[-2000:]}")
                time.sleep(0.001)
        except BaseException:  # Ctrl-C too
            self.kill()
            raise
        finally:
            self.starting = False
        self.address = f"127.0.0.1:{self.port_file.read_text().strip()}"
        return self

    def interrupt(self):
        if self.starting:
            os.kill(self.pid, signal.SIGKILL)

    def stop(self):
        if not self.process:
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self):
        if not self.process:
            return None
        self.process.kill()
        return self.process.wait()


class Peer(Process):
    """What a script of tools/peers starts in a folder and stops there, several processes perhaps."""

    def __init__(self, script, title, folder, settings, environment):
        self.script, self.title, self.folder, self.settings = PEERS / script, title, folder, settings
        self.environment = {**os.environ, **(environment or {})}
        self.starting = None  # the script

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.starting = subprocess.Popen([self.script, "start", self.folder, *self.settings],
                                         stdout=subprocess.PIPE, text=True, env=self.environment, start_new_session=True)
        try:
            told = self.starting.communicate()[0]
            if self.starting.returncode != 0:
                sys.exit(f"{self.title} did not start; what it said is above")
        except BaseException:  # Ctrl-C too: the script would go on to start what kill() no longer finds
            self.starting.kill()
            self.starting.wait()
            self.kill()
            raise
        finally:
            self.starting = None
        self._started(told.split())
        return self

    def interrupt(self):
        if self.starting:
            os.kill(self.starting.pid, signal.SIGKILL)

    def stop(self):
        self._run("stop")

    def kill(self):
        self._run("kill")

    def _run(self, what):
        # A session of its own: Ctrl-C on the terminal must not reach it.
        subprocess.run([self.script, what, self.folder], check=True, start_new_session=True)


class Apache(Peer):
    name = "apache"

    def __init__(self, folder, partitions, settings=(), environment=None):
        super().__init__("apache-broker", "Apache Kafka", folder, [f"num.partitions={partitions}", *settings], environment)

    def _started(self, told):
        self.address = told[-1]
        self.pid = int((self.folder / "pid").read_text())


class HdfsFlume(Peer):
    """HDFS and the agent that writes into it: three processes; `pids` are NameNode's, DataNode's, the agent's."""

    name = "hdfs-flume"

    def __init__(self, folder, settings=(), environment=None):
        super().__init__("hdfs-flume", "HDFS with Flume", folder, settings, environment)

    def _started(self, told):
        self.address, self.agent, *pids = told
        self.pids = [int(pid) for pid in pids]

    @staticmethod
    def installed():
        return subprocess.run([PEERS / "hdfs-flume", "installed"]).returncode == 0


def apache_version():
    for line in (PEERS / "versions.env").read_text().splitlines():
        if line.startswith("KAFKA_VERSION="):
            return line.partition("=")[2]
    return "?"


class Wire:
    """Just enough of the Kafka protocol to time a first produce without a client's own start in it."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, key, version, body):
        frame = struct.pack(">hhih", key, version, 1, -1) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self._take(4))[0]
        return self._take(size)[4:]

    def _take(self, size):
        parts = b""
        while len(parts) < size:
            more = self.socket.recv(size - len(parts))
            if not more:
                raise ConnectionError("the broker closed the connection")
            parts += more
        return parts

    @staticmethod
    def _string(text):
        return struct.pack(">h", len(text)) + text.encode()

    def create_topic(self, topic):
        """CreateTopics v2, one partition; waits for the answer. Returns the error code."""
        body = struct.pack(">i", 1) + self._string(topic) + struct.pack(">ihii", 1, 1, 0, 0) + struct.pack(">i?", 10000, False)
        answer = self.ask(19, 2, body)
        # throttle time, count, name, error
        size = struct.unpack(">h", answer[8:10])[0]
        return struct.unpack(">h", answer[10 + size:12 + size])[0]

    def produce(self, topic, batch):
        """Produce v3, acks=all, partition 0. Returns the error code."""
        body = struct.pack(">hhi", -1, -1, 10000) + struct.pack(">i", 1) + self._string(topic)
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        answer = self.ask(0, 3, body)
        size = struct.unpack(">h", answer[4:6])[0]
        return struct.unpack(">h", answer[14 + size:16 + size])[0]


def one_record_batch(value):
    """A record batch of one record, uncompressed, now."""
    def varint(number):
        number = (number << 1) ^ (number >> 63)
        out = b""
        while number > 127:
            out += bytes([number & 127 | 128])
            number >>= 7
        return out + bytes([number])

    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    now = int(time.time() * 1000)
    after_crc = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + varint(len(record)) + record
    return struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, crc32c(after_crc)) + after_crc


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

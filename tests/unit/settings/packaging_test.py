#!/usr/bin/env python3
"""tools/packaging against the broker: its keys exist, its paths agree, the broker starts with it, systemd accepts it.
And every member that a setting fills is read by the broker: a setting that does nothing is a lie."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "python"))
import counted  # noqa: E402

BROKER = os.environ["CIUIC_BROKER"]
PACKAGING = ROOT / "tools" / "packaging"
# Accepted because tools set them; their text in docs/configuration.md says that they have no effect here.
WITHOUT_EFFECT = {"preallocate", "unclean_leader_election_enable"}


def properties():
    return dict(line.split("=", 1) for line in (PACKAGING / "server.properties").read_text().splitlines()
                if line and not line.startswith("#"))


def directives():
    return [tuple(line.split("=", 1)) for line in (PACKAGING / "ciuic-broker.service").read_text().splitlines()
            if "=" in line and not line.startswith("#")]


def unit():
    return dict(directives())


def away_from_the_card(lines):
    """Directives among these that keep a broker from an RDMA card, or its memory from being pinned."""
    allowed = {value for key, value in lines if key == "DeviceAllow"}
    found = []
    for key, value in lines:
        hides = key in ("PrivateDevices", "PrivateNetwork", "PrivateUsers", "NetworkNamespacePath", "RootDirectory", "RootImage") and value != "no"
        hides |= key == "LimitMEMLOCK" and value != "infinity"
        hides |= key in ("InaccessiblePaths", "TemporaryFileSystem", "BindPaths", "BindReadOnlyPaths") and "/dev" in value
        hides |= key == "DevicePolicy" and value != "auto" and not {"char-infiniband_verbs rw", "/dev/infiniband/rdma_cm rw"} <= allowed
        hides |= key == "RestrictAddressFamilies" and not {"AF_INET", "AF_INET6", "AF_NETLINK"} <= set(value.split())
        hides |= key == "SystemCallFilter" and not value.startswith("@system-service")
        found += [f"{key}={value}"] if hides else []
    if not any(key == "LimitMEMLOCK" for key, _ in lines):
        found.append("no LimitMEMLOCK: 8 MiB")
    return found


class Packaging(unittest.TestCase):
    def test_keys_of_the_example_exist(self):
        printed = subprocess.run([BROKER, "--print-settings", "markdown"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"`([a-z0-9.]+)`", printed))
        commented = set(re.findall(r"^#([a-z.]+)=", (PACKAGING / "server.properties").read_text(), re.M))
        self.assertGreater(len(known), 60)
        self.assertEqual((set(properties()) | commented) - known, set())

    def test_paths_of_the_unit_are_those_of_the_example(self):
        keys, example = unit(), properties()
        self.assertEqual(example["log.dirs"], "/var/lib/" + keys["StateDirectory"])
        self.assertEqual(example["onesided.runtime.dir"], "/run/" + keys["RuntimeDirectory"])
        self.assertEqual(keys["ExecStart"], "/usr/bin/ciuic-broker /etc/ciuic-kafka/server.properties")
        user = (PACKAGING / "ciuic-kafka.sysusers").read_text().split()
        self.assertEqual((user[1], user[-1]), (keys["User"], example["log.dirs"]))

    def test_the_unit_keeps_neither_the_card_nor_pinned_memory_from_the_broker(self):
        lines = directives()
        self.assertEqual(away_from_the_card(lines), [])
        self.assertIn("rdma-hw.target", unit()["After"].split())
        for one in ("PrivateDevices=yes", "LimitMEMLOCK=64M", "InaccessiblePaths=-/dev/infiniband", "PrivateNetwork=yes",
                    "RestrictAddressFamilies=AF_INET AF_UNIX"):
            self.assertEqual(away_from_the_card([*lines, tuple(one.split("=", 1))]), [one])
        closed = [line for line in lines if line[1] != "/dev/infiniband/rdma_cm rw"]
        self.assertEqual(away_from_the_card(closed), ["DevicePolicy=closed"])

    def test_the_broker_starts_with_the_example_and_ends_on_sigterm(self):
        with tempfile.TemporaryDirectory(prefix="ciuic-packaging-") as folder:
            overrides = {"log.dirs": f"{folder}/logs", "listeners": "PLAINTEXT://127.0.0.1:0", "onesided.runtime.dir": f"{folder}/run"}
            command = [BROKER, str(PACKAGING / "server.properties"), "--port-file", f"{folder}/port"]
            for key, value in overrides.items():
                command += ["--override", f"{key}={value}"]
            with open(f"{folder}/log", "w") as log:
                broker = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            try:
                end = time.monotonic() + 20
                while not os.path.exists(f"{folder}/port"):
                    self.assertIsNone(broker.poll(), pathlib.Path(folder, "log").read_text())
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.01)
                sockets = [path for path in pathlib.Path(folder, "run").iterdir() if path.is_socket()]
                self.assertEqual([oct(path.stat().st_mode & 0o777) for path in sockets], ["0o660"])
                broker.send_signal(signal.SIGTERM)
                self.assertEqual(broker.wait(30), 0)
            finally:
                if broker.poll() is None:
                    broker.kill()
                    broker.wait()
            text = pathlib.Path(folder, "log").read_text()
            self.assertNotIn("warn", text)
            self.assertNotIn("error", text)

    def test_systemd_accepts_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            text = (PACKAGING / "ciuic-broker.service").read_text().replace("/usr/bin/ciuic-broker", BROKER)
            path = pathlib.Path(folder, "ciuic-broker.service")
            path.write_text(text)
            ran = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))


class CommandLine(unittest.TestCase):
    def refused(self, *arguments):
        ran = subprocess.run([BROKER, *arguments], capture_output=True, text=True, timeout=20)
        self.assertNotEqual(ran.returncode, 0)
        return ran.stderr

    def test_wrong_values_are_refused_with_key_value_and_what_is_allowed(self):
        for pair, allowed in {"num.partitions=0": "at least 1", "listeners=127.0.0.1:9092": "PLAINTEXT://host:port",
                              "advertised.listeners=SSL://a:1": "PLAINTEXT://host:port", "log.level=loud": "debug, info, warn",
                              "log.segment.bytes=1": "at least 1048576", "onesided.shm.socket.mode=0777": "0600, 0660, 0666"}.items():
            with self.subTest(pair):
                key, value = pair.split("=", 1)
                text = self.refused("--override", "log.dirs=/nonexistent/x", "--override", pair)
                for part in (key, value, allowed):
                    self.assertIn(part, text)

    def test_a_file_that_is_not_there_is_named(self):
        self.assertIn("/nonexistent/server.properties", self.refused("/nonexistent/server.properties"))

    def test_an_override_without_a_key_is_refused(self):
        self.assertIn("key=value", self.refused("--override", "=5"))


class Members(unittest.TestCase):
    def test_every_member_of_the_configuration_is_read(self):
        sources = {path: path.read_text() for path in (ROOT / "broker").rglob("*.cpp") if "settings" not in path.parts}
        sources.update({path: path.read_text() for path in (ROOT / "broker").rglob("*.h")
                        if path.name not in ("broker_config.h", "log_config.h", "settings.h")})
        everything = "\n".join(sources.values())
        unread, seen = [], 0
        for header in ("broker/settings/broker_config.h", "broker/log/log_config.h"):
            text = (ROOT / header).read_text().split("struct LogLimits")[0]
            for name in re.findall(r"^  (?:std::)?\w[\w:<>]* (\w+)(?: = [^;]+)?;", text, re.M):
                seen += 1
                if not re.search(rf"(?:\.|->){name}\b", everything) and name not in WITHOUT_EFFECT:
                    unread.append(f"{header}: {name}")
        self.assertGreater(seen, 60)
        self.assertEqual(unread, [])

    def test_settings_without_effect_say_so(self):
        page = (ROOT / "docs" / "configuration.md").read_text()
        for key in ("preallocate", "unclean.leader.election.enable"):
            row = next(line for line in page.splitlines() if line.startswith(f"| `{key}`"))
            self.assertRegex(row, "without effect|Accepted")


if __name__ == "__main__":
    counted.main()

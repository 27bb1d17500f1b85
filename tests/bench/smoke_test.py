#!/usr/bin/env python3
"""ciuic-bench for real, in its smallest form: a run to its end, and runs that a signal ends. CIUIC_BUILD names the build."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from support import BUILD, PROGRAM

import counted
import histogram
import main
import registry
import results
import world

SECONDS = 90


def children_of(pid):
    """Every process below `pid`, by the kernel's own lists."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += [int(child), *children_of(int(child))]
        except OSError:  # ended meanwhile
            pass
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "result.json"

    def start(self, *words):
        command = [sys.executable, "-B", PROGRAM / "main.py", "run", *words, "--without", "apache,librdkafka", "--build", BUILD, "--out", self.out]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_latency_is_measured_and_its_percentiles_are_those_of_its_histogram(self):
        running = self.start("latency", "--quick", "--rounds", "1")
        out, said = running.communicate(timeout=SECONDS)
        self.assertEqual(running.returncode, 0, said + out)
        report = results.load(self.out)
        self.assertTrue(report["complete"], report["why"])
        (benchmark,) = report["benchmarks"]
        (point,) = benchmark["points"]
        self.assertEqual(list(point["contenders"]), ["relay", "one-sided", "tcp"])
        for name, place in point["contenders"].items():
            (sample,), (encoded,) = place["samples"], place["histograms"]
            self.assertEqual(sample["missing"], 0, name)
            self.assertGreater(sample["cpu_us_record"], 0, name)
            found = histogram.Histogram.decode(encoded)
            self.assertEqual(found.total(), 1000, name)
            for percent, metric in ((50, "p50_us"), (90, "p90_us"), (99, "p99_us")):
                self.assertEqual(found.at(percent)[0], round(sample[metric] * 1000), (name, metric))
        self.assertIn("one-sided", point["contenders"]["one-sided"]["detail"]["path"])
        self.assertEqual(point["contenders"]["tcp"]["detail"]["path"], "tcp")
        self.assertIn("latency: How long", out)

    def test_a_signal_leaves_a_valid_result_and_no_process(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number.name):
                self.out.unlink(missing_ok=True)
                running = self.start("latency", "--rounds", "5")
                end = time.monotonic() + SECONDS
                # A driver is at work: a child that is neither perf nor a broker.
                while not any("bench_client" in self.command(pid) for pid in children_of(running.pid)):
                    self.assertLess(time.monotonic(), end, "no driver was started")
                    self.assertIsNone(running.poll())
                    time.sleep(0.02)
                started = children_of(running.pid)
                running.send_signal(number)
                _, said = running.communicate(timeout=SECONDS)
                self.assertEqual(running.returncode, status, said)
                self.assertIn(str(self.out), said)
                self.assertNotIn("Traceback", said)
                report = results.load(self.out)
                self.assertEqual((report["complete"], report["why"]), (False, f"ended by {number.name}"))
                self.assertEqual(report["benchmarks"][0]["name"], "latency")
                self.assertGreaterEqual(len(started), 2)  # a broker and a driver
                self.assertEqual([pid for pid in started if alive(pid)], [])

    def test_an_interrupt_at_any_moment_leaves_no_process(self):
        """Of what a World starts and stops, over and over, until the signal comes."""
        seed = int(os.environ.get("CIUIC_TEST_SEED", time.time_ns() % 2 ** 32))
        moments = random.Random(seed)
        former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number in range(40):
                ending = threading.Timer(moments.uniform(0, 0.06), os.kill, (os.getpid(), signal.SIGINT))
                with self.subTest(seed=seed, number=number), world.World(BUILD, self.folder) as running, self.assertRaises(world.Interrupted):
                    main.end_by_signal(running)
                    ending.start()
                    while True:
                        broker = running.broker("ours")
                        for _ in range(3):
                            running.driver("bench_limits", "memcpy", {"bytes": 1000})
                        running.stop(broker)
                ending.join()
                left = [pid for pid in children_of(os.getpid()) if alive(pid)]
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                self.assertEqual(left, [], f"seed {seed}, interrupt {number}")
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    @staticmethod
    def command(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return ""


class Drivers(unittest.TestCase):
    """What a wrong word gets, whichever the driver."""

    def test_a_word_that_a_workload_does_not_know_is_refused_by_name(self):
        for program in ("bench_client", "bench_librdkafka"):
            path = BUILD / "bench" / program
            if not path.exists():
                self.skipTest("librdkafka-dev is not installed")
            for words, said in ((["produce", "topic=t", "records=1", "record.bytes=1", "recrod=1"], "recrod=1"), (["produce", "records=1"], "topic is missing"),
                                (["consume", "topic=t", "records=x", "record.bytes=1"], "records=x"), (["latency", "topic"], "topic: write key=value"), (["nonsense"], "nonsense")):
                done = subprocess.run([path, *words], capture_output=True, text=True, timeout=20, check=False)
                self.assertNotEqual(done.returncode, 0, (program, words))
                self.assertIn(said, done.stderr, (program, words))

    def test_limits_are_measured(self):
        for what in ("memcpy", "memcpy_reused", "crc32c", "shm", "tcp"):
            done = subprocess.run([BUILD / "bench" / "bench_limits", what, "bytes=3000000"], capture_output=True, text=True, timeout=20, check=True)
            self.assertIn(f'"what":"{what}","bytes":3000000', done.stdout)


if __name__ == "__main__":
    assert os.access(BUILD / "bin" / "ciuic-broker", os.X_OK), f"no ciuic-broker in {BUILD}; give CIUIC_BUILD"
    assert registry.BENCHMARKS
    counted.main()

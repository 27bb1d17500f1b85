#!/usr/bin/env python3
"""The examples of docs/examples run against a live broker and agree; README.md shows the same text."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "unit" / "python"), str(ROOT / "tests" / "clients" / "support"), str(ROOT / "client" / "python")]
import brokers  # noqa: E402
import counted  # noqa: E402
import ciuickafka as ck  # noqa: E402

EXAMPLES = ROOT / "docs" / "examples"
RECORDS = 2000


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.running = brokers.running()
        cls.broker = cls.running.__enter__()
        with ck.Producer({"bootstrap.servers": cls.broker.address}) as producer:
            for number in range(RECORDS):
                producer.send("data", b"value %d" % number)

    @classmethod
    def tearDownClass(cls):
        cls.running.__exit__(None, None, None)

    def run_one(self, *command, topic="data"):
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "client" / "python"))
        return subprocess.run([*map(str, command), self.broker.address, topic], capture_output=True, text=True, timeout=60, env=environment)

    def test_cpp_c_and_python_print_the_same_batches(self):
        built = pathlib.Path(os.environ["CIUIC_EXAMPLES"])
        outputs = {}
        for name, command in {"C++": [built / "example_consume_cpp"], "C": [built / "example_consume_c"],
                              "Python": [sys.executable, EXAMPLES / "consume.py"]}.items():
            ran = self.run_one(*command)
            self.assertEqual(ran.returncode, 0, f"{name}: {ran.stderr}")
            outputs[name] = ran.stdout
            self.assertEqual(sum(int(line.split()[1]) for line in ran.stdout.splitlines()), RECORDS, name)
        self.assertEqual(len(set(outputs.values())), 1, outputs)

    def test_an_error_is_told(self):
        ran = subprocess.run([pathlib.Path(os.environ["CIUIC_EXAMPLES"]) / "example_consume_c", "no:where:at:all", "data"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no:where:at:all", ran.stderr)


class Readme(unittest.TestCase):
    def test_shows_the_examples_as_they_are(self):
        text = (ROOT / "README.md").read_text()
        for kind, name in {"cpp": "consume.cpp", "c": "consume.c", "python": "consume.py"}.items():
            blocks = re.findall(rf"```{kind}\n(.*?)```", text, re.S)
            self.assertIn((EXAMPLES / name).read_text(), blocks, f"README.md shows another text than docs/examples/{name}")

    def test_names_only_files_that_exist(self):
        for page in ["README.md", "CONTRIBUTING.md", *map(str, (ROOT / "docs").glob("*.md"))]:
            path = ROOT / page
            for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
                if "://" not in target:
                    self.assertTrue((path.parent / target).exists(), f"{path.name} links to {target}")

    def test_tour_names_only_files_that_exist(self):
        for page in (ROOT / "docs" / "tour.md", ROOT / "CONTRIBUTING.md"):
            for name in re.findall(r"`((?:transport|broker|client|tests|tools|docs|bench)/[\w./-]+)`", page.read_text()):
                if "/x." not in name:  # "API X" stands for any
                    self.assertTrue((ROOT / name).exists(), f"{page.name} names {name}")


if __name__ == "__main__":
    counted.main()

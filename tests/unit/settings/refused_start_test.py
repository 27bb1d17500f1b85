#!/usr/bin/env python3
"""Starts that must not happen: the broker ends with one line that names the input, what is wrong with it and what to do."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "python"))
import counted  # noqa: E402

BROKER = os.environ["CIUIC_BROKER"]
META = "version=1\ncluster.id=c\nnode.id=1\n"


class RefusedStart(unittest.TestCase):
    def refused(self, overrides, *words):
        command = [BROKER]
        for key, value in {"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": 1, "onesided.enable": "false", **overrides}.items():
            command += ["--override", f"{key}={value}"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            self.fail(f"the broker runs with {overrides}")
        said = [line for line in ended.stderr.splitlines() if line.startswith("ciuic-broker: ")]
        self.assertEqual((ended.returncode, len(said)), (1, 1), ended.stderr)
        for word in words:
            self.assertIn(word, said[0])

    def test_ports_that_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            for port in ("99999", "65536", "4294967296", "-1", "", "9o92", "99999999999999999999"):
                for key in ("listeners", "advertised.listeners"):
                    with self.subTest(port=port, key=key):
                        self.refused({"log.dirs": folder, key: f"PLAINTEXT://127.0.0.1:{port}"}, key, f"127.0.0.1:{port}")

    def test_log_directories_that_overlap(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(folder, f"{folder}.link")
            try:
                for one, other in (("/a", "/a"), ("/a", "/a/"), ("/a", "/a/sub"), ("/a/sub", "/a"), ("/a", "/b/../a"), ("/a", ".link/a/sub")):
                    one, other = folder + one, folder + other
                    with self.subTest(one=one, other=other):
                        self.refused({"log.dirs": f"{one},{other}"}, one, other)
            finally:
                os.unlink(f"{folder}.link")

    def test_meta_properties_that_say_nothing(self):
        for text, word in (("", "version"), ("\x00\xff garbage", "version"), (META.replace("version=1\n", ""), "version"), (META.replace("version=1", "version=7"), "version=7"),
                           (META.replace("node.id=1\n", ""), "node.id"), (META.replace("cluster.id=c\n", ""), "cluster.id"), (META + "directory.id=x\n", "directory.id=x")):
            with self.subTest(text=text), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "meta.properties")
                path.write_text(text, encoding="latin-1")
                self.refused({"log.dirs": folder}, str(path), word, "restore the file")


if __name__ == "__main__":
    counted.main()

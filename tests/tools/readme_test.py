#!/usr/bin/env python3
"""The first steps of the README, run as they stand there but for the address and the folder."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import support
from support import BROKER, CIUIC, ROOT

STEPS = re.search(r"## First steps\n.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


class Readme(unittest.TestCase):
    def test_first_steps_work_line_by_line(self):
        with tempfile.TemporaryDirectory(prefix="ciuic-readme-") as folder:
            script = STEPS[1]
            for ours, here in (("/tmp/ciuic", f"{folder}/ciuic"), ("127.0.0.1:9092", address := support.closed_address()),
                               ("$PWD/build/release/bin", str(pathlib.Path(CIUIC).parent))):
                self.assertIn(ours, script)
                script = script.replace(ours, here)
            # Job control, as in a shell that somebody sits at: kill %1.
            done = subprocess.run(["bash", "-emc", script + "wait\n"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
                                  env=support.environment(CIUIC_BOOTSTRAP=address))
            log = pathlib.Path(folder, "ciuic-broker.log").read_text()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + log)
            self.assertIn("one-sided", done.stderr, "--path does not say that the bytes came one-sidedly")
            one_sided = pathlib.Path(folder, "ciuic-one-sided").read_text().splitlines()
            self.assertIn("broker/server.h", one_sided)
            self.assertEqual(len(one_sided), len(set(one_sided)))
            self.assertIn("stopped clean=true", log)


if __name__ == "__main__":
    if not BROKER:
        sys.exit("CIUIC_BROKER names no broker")
    unittest.main(verbosity=2)

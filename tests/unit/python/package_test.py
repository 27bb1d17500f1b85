#!/usr/bin/env python3
"""The package itself: it declares what the header declares, finds its library, and says what is wrong if it does not."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import counted
from live import ROOT, ck
from ciuickafka import _library, errors

HEADER = (ROOT / "client" / "include" / "ciuic" / "ciuic.h").read_text()


class Declarations(unittest.TestCase):
    def test_functions_are_those_of_the_header(self):
        declared = set(re.findall(r"CIUIC_API [^;(]*?(ciuic_\w+)\(", HEADER))
        not_needed = {"ciuic_reader_next"}  # next_many does it
        self.assertEqual(declared - not_needed, set(_library._FUNCTIONS))

    def test_argument_counts_are_those_of_the_header(self):
        for name, arguments in re.findall(r"CIUIC_API [^;(]*?(ciuic_\w+)\(((?:[^()]|\([^()]*\))*)\);", HEADER):
            if name in _library._FUNCTIONS:
                flat = re.sub(r"\([^()]*\)", "", arguments)
                count = 0 if flat.strip() == "void" else flat.count(",") + 1
                self.assertEqual(len(_library._FUNCTIONS[name]) - 1, count, name)

    def test_every_kind_of_trouble_has_a_class(self):
        kinds = dict(re.findall(r"CIUIC_([A-Z_]+) = (-\d+)", HEADER))
        self.assertEqual({int(code) for code in kinds.values()}, set(errors.BY_CODE))
        for name, code in kinds.items():
            wanted = "BrokerError" if name == "BROKER" else "".join(word.title() for word in name.split("_"))
            self.assertEqual(errors.BY_CODE[int(code)].__name__, wanted)

    def test_structs_are_as_long_as_the_header_says(self):
        program = "#include <stdio.h>\n#include <ciuic/ciuic.h>\nint main(void) { printf(\"" + "%zu " * 8 + "\", " + ", ".join(
            f"sizeof({name})" for name in ("ciuic_error", "ciuic_config_entry", "ciuic_topic_partition", "ciuic_batch_info", "ciuic_header",
                                           "ciuic_record", "ciuic_record_to_send", "ciuic_batch *")) + "); return 0; }\n"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cc", "-std=c11", "-I", str(ROOT / "client" / "include"), "-x", "c", "-", "-o", f"{folder}/sizes"],
                           input=program, text=True, check=True)
            sizes = subprocess.run([f"{folder}/sizes"], capture_output=True, text=True, check=True).stdout.split()
        ours = [_library.Error, _library.ConfigEntry, _library.PartitionOffset, _library.BatchInfo, _library.Header, _library.RecordOut,
                _library.RecordToSend, _library.c_void_p]
        self.assertEqual([int(size) for size in sizes], [_library.sizeof(one) for one in ours])


class Loading(unittest.TestCase):
    def load(self, **environment):
        env = {key: value for key, value in os.environ.items() if key != "CIUIC_LIBRARY"}
        env.update(environment, PYTHONPATH=str(ROOT / "client" / "python"))
        return subprocess.run([sys.executable, "-c", "import ciuickafka; print(ciuickafka.version())"], capture_output=True, text=True, env=env)

    def test_by_name(self):
        self.assertEqual(self.load(CIUIC_LIBRARY=os.environ["CIUIC_LIBRARY"]).stdout.strip(), ck.version())

    def test_by_the_loader(self):
        folder = os.path.dirname(os.environ["CIUIC_LIBRARY"])
        self.assertEqual(self.load(LD_LIBRARY_PATH=folder).stdout.strip(), ck.version())

    def test_installed_it_works_from_any_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {key: value for key, value in os.environ.items() if key not in ("CIUIC_LIBRARY", "PYTHONPATH")}
            python = f"{folder}/venv/bin/python"
            subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", f"{folder}/venv"], check=True)
            source = f"{folder}/tree/client/python"  # a copy: a build leaves folders where it ran
            shutil.copytree(ROOT / "client" / "python", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
            shutil.copy(ROOT / "CMakeLists.txt", f"{folder}/tree")
            install = [python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-index", source]
            refused = subprocess.run(install, capture_output=True, text=True, env=env)
            self.assertIn("tools/build", refused.stdout + refused.stderr)
            subprocess.run(install, check=True, env={**env, "CIUIC_LIBRARY": os.environ["CIUIC_LIBRARY"]})
            shutil.rmtree(f"{folder}/tree")
            program = "import ciuickafka as ck, importlib.metadata as m; print(ck.version(), ck.__version__, m.version('ciuickafka'))"
            ran = subprocess.run([python, "-c", program], capture_output=True, text=True, env=env, cwd="/")
            self.assertEqual(ran.stdout.split(), [ck.version()] * 3, ran.stderr)

    def test_a_library_that_is_not_there_is_named_with_the_remedy(self):
        ran = self.load(CIUIC_LIBRARY="/nonexistent/libciuic.so")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("/nonexistent/libciuic.so", ran.stderr)
        self.assertIn("tools/build", ran.stderr)

    def test_another_library_is_refused_by_name(self):
        ran = self.load(CIUIC_LIBRARY="libc.so.6")
        self.assertIn("libc.so.6 has no ciuic_abi_version", ran.stderr)

    def test_a_wrong_log_level_is_refused(self):
        with self.assertRaisesRegex(ck.InvalidArgument, "loud.*debug, info"):
            ck.set_log_level("loud")


if __name__ == "__main__":
    counted.main()

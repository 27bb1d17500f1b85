"""Puts libciuic.so of a built tree into the wheel, so that what is installed works from any folder. The rest: pyproject.toml."""

import os
import pathlib
import re
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ.get("CIUIC_LIBRARY") or ROOT / "build" / "release" / "lib" / "libciuic.so")


class WithLibrary(build_py):
    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return  # the package finds the library in the tree
        if not LIBRARY.is_file():
            raise SystemExit(f"{LIBRARY} is not there: run tools/build first, or name a libciuic.so in CIUIC_LIBRARY")
        shutil.copyfile(LIBRARY, pathlib.Path(self.build_lib) / "ciuickafka" / "libciuic.so")


class Native(Distribution):
    def has_ext_modules(self):
        return True  # a library inside: the wheel is for this platform only


version = re.search(r"^project\(ciuickafka VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
setup(version=version, cmdclass={"build_py": WithLibrary}, distclass=Native)

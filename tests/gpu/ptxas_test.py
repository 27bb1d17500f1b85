#!/usr/bin/env python3
"""NVIDIA's assembler takes our kernels for every GPU that it knows: ptxas_test.py FILE.ptx

It comes with CUDA's toolkit, and without one with PyPI's nvidia-cuda-nvcc-cu12. Exit 77: it is not here.
"""

import os
import re
import shutil
import subprocess
import sys

ptxas = os.environ.get("CIUIC_PTXAS") or shutil.which("ptxas")
if not ptxas:
    print("skipped: no ptxas in PATH, and CIUIC_PTXAS names none")
    sys.exit(77)
text = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
known = sorted({int(number) for number in re.findall(r"'sm_(\d+)'", text) if int(number) >= 70})
assert known, f"{ptxas} --help names no GPU"
for gpu in known:
    done = subprocess.run([ptxas, f"-arch=sm_{gpu}", sys.argv[1], "-o", os.devnull], capture_output=True, text=True, check=False)
    print(f"sm_{gpu}: {'taken' if done.returncode == 0 else done.stderr.strip()}")
    if done.returncode != 0 or done.stderr.strip():
        sys.exit(1)

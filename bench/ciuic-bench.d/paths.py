"""Where things are."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
RESULTS = ROOT / "build" / "bench-results"  # what `run` writes without --out

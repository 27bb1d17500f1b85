"""Apache Kafka's jars, as tools/peers/setup brings them into the cache. Without Maven and Java: exit 77, a skip."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("CIUIC_CACHE") or pathlib.Path(home) / "ciuickafka")


def version():
    for line in (ROOT / "tools/peers/versions.env").read_text().splitlines():
        if line.startswith("KAFKA_VERSION="):
            return line.split("=", 1)[1]
    sys.exit("tools/peers/versions.env names no KAFKA_VERSION")


def libs():
    """The folder of jars. What cannot be brought although Maven is there is a failure."""
    if not shutil.which("mvn") or not shutil.which("java"):
        print("SKIPPED: Maven and Java are not installed; tools/test installs them")
        sys.exit(77)
    done = subprocess.run([ROOT / "tools/peers/setup", "kafka"], capture_output=True, text=True)
    folder = cache() / f"kafka-{version()}" / "libs"
    if done.returncode != 0 or not list(folder.glob("kafka-clients-*.jar")):
        sys.exit(f"tools/peers/setup kafka failed: {done.stderr[-2000:]}")
    return folder

"""Golden bytes: what Apache's Java code writes is decoded and encoded identically here, and the other way round.

Usage: golden_vs_apache.py KAFKA_GOLDEN_PROGRAM. CIUIC_SEED replays a run. Nothing is kept: the bytes are made each time.
"""

import os
import pathlib
import random
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(HERE / "support"))
import apache_jars  # noqa: E402

ROUNDS = 6  # of each message and version; the first has Apache's defaults


def java(libs, *arguments, stdin=None):
    command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", f"{libs}/*", str(HERE / "golden/Golden.java"), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"Golden.java {arguments[0]} failed: {done.stderr.decode()[-3000:]}")
    return done.stdout


def ours(program, *arguments, stdin=None):
    return subprocess.run([program, *arguments], input=stdin, capture_output=True)


def errors_agree(libs):
    """Codes, names and what may be tried again."""
    theirs = [line.split() for line in java(libs, "errors").decode().splitlines()]
    rows = re.findall(r"^CIUIC_ERROR\((\w+), (-?\d+), (\w+)\)", (ROOT / "transport/kafka/error_code.def").read_text(), re.M)
    mine = [[code, name.upper(), retriable] for name, code, retriable in rows]
    for row in mine:
        if row not in theirs:
            print(f"error code {row} is not Apache's")
    for row in theirs:
        if row not in mine:
            print(f"error code {row} of Apache is missing or different")
    return sorted(mine) == sorted(theirs)


def main():
    program = sys.argv[1]
    libs = apache_jars.libs()
    seed = os.environ.get("CIUIC_SEED") or str(random.SystemRandom().randrange(1 << 31))
    print(f"replay: CIUIC_SEED={seed}")
    names = ours(program, "names").stdout.decode().split()
    lines = java(libs, "messages", seed, str(ROUNDS), *names) + java(libs, "batches", seed)
    checked = ours(program, "check", stdin=lines)
    *problems, count = checked.stdout.decode().strip().splitlines()
    print("\n".join(line[:2000] for line in problems))
    counted = re.fullmatch(r"(\d+) passed, (\d+) failed", count)
    if not counted:
        sys.exit(f"kafka_golden check ended with {checked.returncode}: {checked.stderr.decode()[-2000:]}")
    passed, failed = int(counted[1]), int(counted[2])

    written = ours(program, "write", seed).stdout
    read = java(libs, "read", stdin=written)
    if written and read == written:
        passed += 1
    else:
        failed += 1
        for mine, theirs in zip(written.decode().splitlines(), read.decode().splitlines()):
            if mine != theirs:
                print(f"Java reads our batch differently:\n  ours {mine[:500]}\n  Java {theirs[:500]}")
                break
    if errors_agree(libs):
        passed += 1
    else:
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

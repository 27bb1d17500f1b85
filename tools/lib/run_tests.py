"""Builds presets, runs their CTest entries and counts what they report. Started by tools/test.

Counting: a GoogleTest binary reports each of its cases by XML, a script may report by a line 'N passed, N failed
(, N skipped)', and anything else counts as one.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = os.environ.get("CIUIC_JOBS", str(os.cpu_count()))
COUNT_LINE = re.compile(r"^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)

# Which CTest labels a preset runs. Sanitizers run our C++ tests, and the suites and a few crash scripts against their
# broker; clients are not installed for them. `fuzz` runs libFuzzer's targets alone.
QUICK = "quick"
SANITIZED = "sanitized"
FUZZ = "fuzz"
TARGETS = {SANITIZED: ["sanitized_tests"], FUZZ: ["fuzz_targets"]}
BUILD_ONLY = "build only"  # counts as one test
DEEP_TIDY_S = 240
BEGIN_WITHIN_S = 60 * int(os.environ.get("CIUIC_TEST_MINUTES", "50"))


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = {}
        self.failures = []

    def add(self, passed, failed, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


def build(preset, targets=()):
    started = time.time()
    folder = ROOT / "build" / preset
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "build.ninja").exists():
        configured = subprocess.run(["cmake", "--preset", preset], cwd=ROOT, capture_output=True, text=True)
        if configured.returncode != 0:
            print(configured.stdout[-3000:], configured.stderr[-3000:], file=sys.stderr)
            print(f"error: cmake could not configure preset {preset}", file=sys.stderr)
            return False
    print(f"==> building {preset}", flush=True)
    built = subprocess.run(["ninja", "-C", str(folder), "-j", JOBS, *targets], capture_output=True, text=True)
    if built.returncode != 0:
        print(built.stdout[-8000:], file=sys.stderr)
        return False
    print(f"==> {preset} built in {time.time() - started:.0f} s", flush=True)
    return True


def count_case_report(report, totals, name):
    root = xml.parse(report).getroot()
    for case in root.iter("testcase"):
        skipped = case.find("skipped")
        title = f"{name}: {case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            totals.add(0, 1)
            totals.failures.append(title)
        elif skipped is not None or case.get("status") == "notrun":
            totals.add(0, 0, 1)
            text = (skipped.get("message") if skipped is not None else "") or "disabled"
            reason = text.strip().splitlines()[-1]
            totals.reasons[reason] = totals.reasons.get(reason, 0) + 1
        else:
            totals.add(1, 0)


def run_ctest(preset, labels, regex, totals):
    folder = ROOT / "build" / preset
    reports = folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    junit = reports / "ctest.junit"
    command = ["ctest", "--test-dir", str(folder), "-j", JOBS, "--output-junit", str(junit), "--output-on-failure"]
    if labels:
        command += ["-L", f"^({labels})$"]
    if regex:
        command += ["-R", regex]
    env = dict(os.environ, GTEST_OUTPUT=f"xml:{reports}/gtest/", GTEST_BRIEF="1",
               ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1", UBSAN_OPTIONS="print_stacktrace=1",
               LSAN_OPTIONS=f"suppressions={ROOT}/tools/lib/lsan.supp:print_suppressions=0",
               TSAN_OPTIONS=f"second_deadlock_stack=1:suppressions={ROOT}/tools/lib/tsan.supp")
    if preset == "release":
        env.setdefault("CIUIC_SEEDS", "10000")  # a quarter of a minute here, too long under a sanitizer
    subprocess.run(command, env=env)
    if not junit.exists():
        totals.add(0, 1)
        totals.failures.append(f"{preset}: ctest wrote no report")
        return
    for case in xml.parse(junit).getroot().iter("testcase"):
        name = case.get("name")
        status = case.get("status")
        report = reports / "gtest" / f"{name}.xml"
        printed = COUNT_LINE.findall(case.findtext("system-out") or "")
        failed_before = totals.failed
        if report.exists():
            count_case_report(report, totals, f"{preset}/{name}")
        elif printed:
            passed, failed, skipped = printed[-1]
            totals.add(int(passed), int(failed), int(skipped or 0))
            if int(failed):
                totals.failures.append(f"{preset}/{name}")
        elif status == "run":
            totals.add(1, 0)
        elif status == "notrun" or status == "disabled":
            totals.add(0, 0, 1)
            totals.reasons[f"{name}: not run"] = 1
        # A crash, a time-out or a non-zero exit counts even where the report says that all is well.
        if status == "fail" and totals.failed == failed_before:
            totals.add(0, 1)
            totals.failures.append(f"{preset}/{name} (exit status or time-out)")


def run_tidy(totals, *options):
    name = " ".join(["tidy", *options])
    print(f"==> {name}", flush=True)
    ran = subprocess.run([str(ROOT / "tools" / "tidy"), *options], capture_output=True, text=True)
    print(ran.stdout, end="", flush=True)
    if ran.returncode == 0:
        totals.add(1, 0)
    else:
        totals.add(0, 1)
        totals.failures.append(name)
        print(ran.stderr, file=sys.stderr)


def report_coverage():
    """Lines of ours that the preset's tests ran, by room; the counters are those of every run since the last build."""
    folder = ROOT / "build" / "coverage"
    rooms = ["transport", "broker", "client"]
    command = ["gcovr", "--root", str(ROOT), "--object-directory", str(folder), "-j", JOBS, "--json-summary", "-",
               "--json-summary-pretty", "--exclude-throw-branches", "--gcov-ignore-parse-errors", str(folder)]
    for room in rooms:
        command += ["--filter", f"{ROOT}/{room}/"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        print(ran.stderr[-2000:], file=sys.stderr)
        return
    lines = {}
    for file in json.loads(ran.stdout)["files"]:
        room = os.path.dirname(file["filename"])
        covered, total = lines.get(room, (0, 0))
        lines[room] = covered + file["line_covered"], total + file["line_total"]
    lines["all"] = tuple(map(sum, zip(*lines.values())))
    for room, (covered, total) in sorted(lines.items()):
        print(f"lines covered {100 * covered / max(total, 1):5.1f} %  {covered:6} of {total:6}  {room}")


def main():
    parser = argparse.ArgumentParser(usage="tools/test [--quick] [--preset NAME] [-R REGEX] [--list]")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--preset")
    parser.add_argument("-R", dest="regex")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    if options.preset:
        runs = [(options.preset, FUZZ if options.preset == "fuzz" else SANITIZED)]
    elif options.quick:
        runs = [("release", QUICK)]
    elif options.regex:
        runs = [("release", None)]
    else:
        runs = [("release", None), ("asan", SANITIZED), ("tsan", SANITIZED), ("fuzz", FUZZ), ("clang", BUILD_ONLY)]

    totals = Totals()
    started = time.time()
    if options.list:
        build("release")
        return subprocess.run(["ctest", "--test-dir", str(ROOT / "build" / "release"), "-N", "-V"]).returncode
    if not options.regex and not options.preset:
        run_tidy(totals)
    for preset, labels in runs:
        # A slow machine must still end with a result: what is not begun by then is told as skipped.
        if preset != runs[0][0] and time.time() - started > BEGIN_WITHIN_S:
            totals.add(0, 0, 1)
            totals.reasons[f"preset {preset}: {BEGIN_WITHIN_S // 60} minutes were over; tools/test --preset {preset}"] = 1
            continue
        if not build(preset, TARGETS.get(labels, [])):
            totals.add(0, 1)
            totals.failures.append(f"{preset} does not build")
            continue
        if labels == BUILD_ONLY:
            totals.add(1, 0)
            continue
        run_ctest(preset, labels, options.regex, totals)
        if preset == "coverage":
            report_coverage()
        if preset == "release" and labels is None and not options.regex:
            run_tidy(totals, "--deep", f"--seconds={DEEP_TIDY_S}")  # needs the build's generated headers
    for reason, times in sorted(totals.reasons.items()):
        print(f"skipped {times} x: {reason}")
    for failure in totals.failures:
        print(f"FAILED {failure}")
    print(f"took {time.time() - started:.0f} s")
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped", flush=True)
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())

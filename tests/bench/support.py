"""Results as a run writes them, from figures; no program is started."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench" / "ciuic-bench.d"
sys.dont_write_bytecode = True
sys.path[:0] = [str(PROGRAM), str(ROOT / "tests" / "unit" / "python")]
BUILD = pathlib.Path(os.environ.get("CIUIC_BUILD", ROOT / "build" / "release"))

import declare  # noqa: E402
import results  # noqa: E402

SPEED = declare.Metric("mb_s", "throughput", "MB/s", declare.MORE, "bytes a second")
CPU = declare.Metric("cpu_s", "CPU", "s", declare.LESS, "seconds of CPU")
MEMORY = declare.Metric("memory", "memory", "MiB", declare.TOLD, "only told")


class Still(declare.Workload):
    """Measures nothing; says in which order it was asked. `fails` and `ends` are (contender, n-th call) that raise."""

    order, fails, ends = [], None, None

    def open(self):
        self.order.append("open")

    def prepare(self, point):
        self.order.append(f"prepare {point.label}")

    def measure(self, contender, point):
        self.order.append(contender.name)
        if self.fails == (contender.name, self.order.count(contender.name)):
            raise RuntimeError("the driver ended with status 1")
        if self.ends and self.ends[0] == (contender.name, self.order.count(contender.name)):
            raise self.ends[1]
        return {"metrics": {"mb_s": 100.0 * self.order.count(contender.name), "cpu_s": 1.0}}

    def count(self, contender, point):
        self.order.append(f"count {contender.name}")
        return {"memory": 7}

    def close(self):
        self.order.append("close")


def benchmark(name="still", run=Still, points=(declare.Point("one", 1, quick=True), declare.Point("two", 2)), **more):
    return declare.Benchmark(
        name=name, question="Why?", workload="Nothing & <nobody>.", run=run, axis=declare.Axis("size", "B", points),
        contenders=(declare.Contender("memory", "the limit", kind="limit", broker=""), declare.Contender("ours <&\">", "we"),
                    declare.Contender("theirs", "they", broker="apache", settings=(declare.Setting("them", "k", "v & w", "because 1 < 2"),))),
        metrics=(SPEED, CPU, MEMORY), parameters={}, plots=(declare.Plot("mb_s", "Speed", True), declare.Plot("cpu_s", "CPU")), **more)


def report(samples, one=None, **more):
    """{point: {contender: [{metric: value}, …]}} as a complete result."""
    one = one or benchmark()
    entry = results.describe(one, one.contenders)
    for number, (label, contenders) in enumerate(samples.items(), 1):
        places = {name: {"samples": [], "histograms": [], "summary": {}, "detail": {}} for name in contenders}
        for name, rounds in contenders.items():
            for figures in rounds:
                histogram = figures.get("histogram")
                results.add_sample(places[name], {"metrics": {key: value for key, value in figures.items() if key != "histogram"}, "histogram": histogram})
        entry["points"].append({"label": label, "value": number, "contenders": places})
    return {
        "format": results.FORMAT, "complete": True, "why": "", "date": "2026-01-01T00:00:00+00:00",
        "machine": {"cpu": "a <cpu>", "cores": 2, "memory_gib": 8, "kernel": "6.1", "network": "loopback", "huge_pages_shmem": "never"},
        "versions": {"commit": "abc", "client": "ciuickafka 0.1.0", "librdkafka": "", "apache_kafka": "4"}, "load_before": 0.1, "load_after": 0.2,
        "options": {"rounds": 5, "quick": False}, "failures": [], "benchmarks": [entry], **more}


def rounds(*values, metric="mb_s"):
    return [{metric: value} for value in values]

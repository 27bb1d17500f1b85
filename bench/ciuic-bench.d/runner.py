"""Warm-up, then interleaved rounds: every contender once, then every one again, so that a busy machine is busy for all."""

import datetime
import time

import machine
import results
from progress import Progress
from world import Failed


def plan(benchmarks, without, quick):
    """[(benchmark, contenders, points)]: what is left where contenders are left out; a benchmark without a peer is not run."""
    out = []
    for benchmark in benchmarks:
        contenders = [one for one in benchmark.contenders if not without & {one.name, one.broker, one.driver.removeprefix("bench_"), one.kind}]
        if any(one.kind == "peer" for one in contenders):
            out.append((benchmark, contenders, benchmark.points(quick)))
    return out


class Runner:
    def __init__(self, world, out, rounds, quick, without, counting, options):
        self.world, self.out, self.rounds, self.quick, self.without = world, out, rounds, quick, without
        self.counting = counting and world.counts_syscalls
        self.report = {
            "format": results.FORMAT, "complete": False, "why": "still running",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": machine.machine(), "versions": machine.versions(world.build), "load_before": machine.load(),
            "options": options | {"rounds": rounds, "quick": quick, "without": sorted(without), "system_calls_counted": self.counting},
            "failures": [], "benchmarks": []}

    def run(self, benchmarks):
        """The report; also in the file, after every round. Raises nothing for a benchmark that failed: the report names it."""
        planned = plan(benchmarks, self.without, self.quick)
        rounds = self.rounds + 1 + (1 if self.counting else 0)
        progress = Progress(sum(len(points) * len(contenders) * rounds for _, contenders, points in planned))
        began = time.monotonic()
        results.save(self.report, self.out)  # a place that cannot be written is known now, not after hours
        try:
            for benchmark, contenders, points in planned:
                try:
                    self._benchmark(benchmark, contenders, points, progress)
                except Exception as error:  # whatever it is: it is named, and the others are measured
                    why = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                    self.report["failures"].append({"benchmark": benchmark.name, "why": why})
                    progress.say(f"FAILED {benchmark.name}: {why}")
            self.report |= {"complete": not self.report["failures"], "why": "a benchmark failed" if self.report["failures"] else ""}
        except KeyboardInterrupt as error:
            self.report["why"] = str(error) or "interrupted"
            raise
        finally:
            progress.end()
            self.report |= {"seconds": round(time.monotonic() - began, 1), "load_after": machine.load()}
            results.save(self.report, self.out)
        return self.report

    def _benchmark(self, benchmark, contenders, points, progress):
        entry = results.describe(benchmark, contenders)
        self.report["benchmarks"].append(entry)
        work = benchmark.run(self.world, benchmark, contenders, self.quick)
        progress.step(benchmark.name, "starting")
        progress.done -= 1
        try:
            work.open()
            for point in points:
                self._point(work, benchmark, contenders, point, entry, progress)
        finally:
            work.close()

    def _point(self, work, benchmark, contenders, point, entry, progress):
        where = f"{benchmark.name} {point.label}".strip()
        found = {one.name: {"samples": [], "histograms": [], "summary": {}, "detail": {}} for one in contenders}
        entry["points"].append({"label": point.label, "value": point.value, "contenders": found})
        work.prepare(point)
        for number in range(self.rounds + 1):
            for contender in contenders:
                progress.step(where, f"{f'round {number} of {self.rounds}' if number else 'warm-up'}, {contender.name}")
                sample = work.measure(contender, point)
                if number:
                    results.add_sample(found[contender.name], sample)
            results.save(self.report, self.out)
        if self.counting:
            for contender in contenders:
                progress.step(where, f"system calls, {contender.name}")
                if counts := work.count(contender, point):
                    results.add_counts(found[contender.name], counts)
        work.clean(point)

"""Two results, figure by figure. Worse is what is worse by more than the tolerance, and outside what the other's rounds went over."""

import dataclasses

import results
import stats
import tables

TOLERANCE = 0.05
LIMIT_MOVED = 0.10  # a machine on which the limits moved so far is not the same one


@dataclasses.dataclass(frozen=True)
class Difference:
    benchmark: str
    point: str
    contender: str
    metric: dict
    before: stats.Summary
    after: stats.Summary
    change: float  # above 0: better
    verdict: str  # "worse", "better", "same"

    @property
    def worse(self):
        return self.verdict == "worse"

    def in_words(self):
        unit = self.metric["unit"]
        return (f"{self.benchmark} / {self.point} / {self.contender}: {self.metric['title']} "
                f"{tables.number(self.before.median)} → {tables.number(self.after.median)} {unit}, {abs(self.change):.1%} {self.verdict} "
                f"(rounds: {tables.span(self.before)} → {tables.span(self.after)})")


def _verdict(before, after, change, tolerance):
    if abs(change) <= tolerance or not stats.apart(before, after):
        return "same"
    return "better" if change > 0 else "worse"


def differences(before, after, tolerance=TOLERANCE):
    """Every judged figure that both have; limits are none of ours and are told by `warnings`."""
    old = {(benchmark["name"], point["label"], name): place for benchmark, point, name, place in results.places(before)}
    for benchmark, point, name, place in results.places(after):
        was = old.get((benchmark["name"], point["label"], name))
        if was is None or benchmark["contenders"][name]["kind"] == "limit":
            continue
        for metric in benchmark["metrics"]:
            first, second = results.summary(was, metric["name"]), results.summary(place, metric["name"])
            if not metric["better"] or first is None or second is None:
                continue
            change = stats.changed(first, second, metric["better"])
            yield Difference(benchmark["name"], point["label"], name, metric, first, second, change, _verdict(first, second, change, tolerance))


def warnings(before, after):
    """Why the two may not be comparable."""
    for what in ("cpu", "cores", "memory_gib", "kernel", "huge_pages_shmem"):
        first, second = before["machine"].get(what), after["machine"].get(what)
        if first != second:
            yield f"different machines: {what} {first} → {second}"
    for what in ("quick",):
        if before["options"].get(what) != after["options"].get(what):
            yield f"different workloads: {what} {before['options'].get(what)} → {after['options'].get(what)}"
    for name, report in (("first", before), ("second", after)):
        if not report["complete"]:
            yield f"the {name} result is not complete: {report['why']}"
        if report["options"]["rounds"] < 3:
            yield f"the {name} result has {report['options']['rounds']} round(s) a figure: its spread says little"
    old = {(benchmark["name"], point["label"], name): place for benchmark, point, name, place in results.places(before)}
    for benchmark, point, name, place in results.places(after):
        was = old.get((benchmark["name"], point["label"], name))
        if was is None or benchmark["contenders"][name]["kind"] != "limit":
            continue
        first, second = results.summary(was, "mb_s"), results.summary(place, "mb_s")
        if first and second and abs(stats.changed(first, second, "more")) > LIMIT_MOVED:
            yield (f"the machine itself moved: {benchmark['name']} / {point['label']} / {name} "
                   f"{tables.number(first.median)} → {tables.number(second.median)} MB/s")


def told(before, after, tolerance=TOLERANCE):
    """(text, whether something got worse)."""
    found = list(differences(before, after, tolerance))
    lines = [f"warning: {text}" for text in warnings(before, after)]
    worse, better = [one for one in found if one.worse], [one for one in found if one.verdict == "better"]
    if not found:
        lines.append("nothing to compare: no benchmark, point and contender is in both")
    for title, some in (("worse", worse), ("better", better)):
        if some:
            lines.append(f"\n{title}:")
            lines += ["  " + one.in_words() for one in sorted(some, key=lambda one: -abs(one.change))]
    lines.append(f"\n{len(found)} figures compared: {len(worse)} worse, {len(better)} better, {len(found) - len(worse) - len(better)} the same "
                 f"(within {tolerance:.0%} or each other's spread)")
    return "\n".join(lines).lstrip("\n"), bool(worse)

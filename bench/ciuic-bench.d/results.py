"""The JSON that a run writes and everything else reads. It is valid at every moment: written whole to a file beside it, then
renamed; `complete` says whether the run came to its end."""

import dataclasses
import json
import os
import pathlib
import tempfile

import stats

FORMAT = 1


class Unreadable(ValueError):
    """Not a result file; the text names it and says what to do."""


def describe(benchmark, contenders):
    """What a report says of a benchmark, so that it needs nothing but the file."""
    return {
        "name": benchmark.name, "question": benchmark.question, "workload": benchmark.workload,
        "axis": {"title": benchmark.axis.title, "unit": benchmark.axis.unit, "logarithmic": benchmark.axis.logarithmic},
        "contenders": {one.name: {"kind": one.kind, "what": one.what} for one in contenders},
        "metrics": [dataclasses.asdict(metric) for metric in benchmark.metrics],
        "plots": [dataclasses.asdict(plot) for plot in benchmark.plots],
        "settings": [dataclasses.asdict(setting) for setting in benchmark.settings()],
        "parameters": benchmark.parameters,
        "points": [],
    }


def add_sample(place, sample):
    """`place` is a contender's entry at a point; its summary follows its samples."""
    place["samples"].append(sample["metrics"])
    if sample.get("histogram"):
        place["histograms"].append(sample["histogram"])
    place["detail"] = sample.get("detail", {})
    _summarize(place)


def add_counts(place, counts):
    """System calls: counted once, so that they have no spread."""
    place["counted"] = counts
    _summarize(place)


def _summarize(place):
    found = stats.summaries(place["samples"] + ([place["counted"]] if place.get("counted") else []))
    place["summary"] = {name: dataclasses.asdict(summary) for name, summary in found.items()}


def summary(place, metric):
    """A contender's Summary of a metric at a point, or None."""
    found = place["summary"].get(metric)
    return stats.Summary(**found) if found else None


def save(report, path):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(path):
    try:
        report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}; name a file that `ciuic-bench run` wrote") from None
    except ValueError as error:
        raise Unreadable(f"{path}: not JSON ({error}); name a file that `ciuic-bench run` wrote") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT or "benchmarks" not in report:
        raise Unreadable(f"{path}: not a result of this ciuic-bench (format {FORMAT}); run it again")
    return report


def places(report):
    """(benchmark, point, contender's name, its entry), everything that was measured."""
    for benchmark in report["benchmarks"]:
        for point in benchmark["points"]:
            for name, place in point["contenders"].items():
                if place["samples"]:
                    yield benchmark, point, name, place

"""What a plot shows, from a result: values that svg.py draws for the page and png.py by matplotlib."""

import dataclasses

import histogram
import results


@dataclasses.dataclass(frozen=True)
class Series:
    name: str
    kind: str  # "peer" or "limit"
    number: int  # of its colour and mark: a contender's is one in all figures of a result
    points: tuple  # (x, y, low, high)


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str  # of its file
    title: str
    x_title: str
    y_title: str
    series: tuple
    x_labels: tuple = ()  # (x, label)
    x_logarithmic: bool = False
    y_logarithmic: bool = False
    bars: bool = False  # one point on the axis: a bar a series


def _of_plot(benchmark, plot, numbers):
    metric = next(one for one in benchmark["metrics"] if one["name"] == plot["metric"])
    series = []
    for name, about in benchmark["contenders"].items():
        points = []
        for point in benchmark["points"]:
            place = point["contenders"].get(name)
            summary = place and results.summary(place, metric["name"])
            if summary:
                points.append((point["value"], summary.median, summary.low, summary.high))
        if points:
            series.append(Series(name, about["kind"], numbers[name], tuple(points)))
    if not series:
        return None
    labels = tuple((point["value"], point["label"]) for point in benchmark["points"])
    positive = all(point[1] > 0 for one in series for point in one.points)
    return Figure(f"{benchmark['name']}-{metric['name']}", plot["title"], benchmark["axis"]["title"], metric["unit"] or metric["title"], tuple(series), labels,
                  benchmark["axis"]["logarithmic"], plot["logarithmic"] and positive, bars=len(labels) == 1)


# The usual axis of latency percentiles: each step to the right is ten times fewer records.
TAIL = ((50, "50 %"), (90, "90 %"), (99, "99 %"), (99.9, "99.9 %"), (99.99, "99.99 %"))


def _of_percentiles(benchmark, point, numbers):
    series = []
    for name, place in point["contenders"].items():
        if not place.get("histograms"):
            continue
        total = histogram.merged(place["histograms"])
        shown = [percent for percent in (10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99) if total.total() * (100 - percent) >= 100]
        values = total.at(*shown)
        series.append(Series(name, "peer", numbers[name], tuple((1 / (1 - percent / 100), max(value / 1000, 0.1),) + (max(value / 1000, 0.1),) * 2
                                                 for percent, value in zip(shown, values))))
    if not series:
        return None
    return Figure(f"{benchmark['name']}-percentiles-{point['label']}".replace("/", "-").replace(",", ""), f"Percentiles, all rounds, {point['label']}", "of records within", "us",
                  tuple(series), tuple((1 / (1 - percent / 100), label) for percent, label in TAIL), True, True)


def numbers_of(report):
    """{contender: its number}; peers and limits are counted apart, as they are drawn."""
    out, counts = {}, {}
    for benchmark in report["benchmarks"]:
        for name, about in benchmark["contenders"].items():
            if name not in out:
                out[name] = counts.get(about["kind"], 0)
                counts[about["kind"]] = out[name] + 1
    return out


def of_benchmark(benchmark, numbers):
    found = [_of_plot(benchmark, plot, numbers) for plot in benchmark["plots"]]
    found += [_of_percentiles(benchmark, point, numbers) for point in benchmark["points"]]
    return [figure for figure in found if figure]


def of_report(report):
    numbers = numbers_of(report)
    return [figure for benchmark in report["benchmarks"] for figure in of_benchmark(benchmark, numbers)]

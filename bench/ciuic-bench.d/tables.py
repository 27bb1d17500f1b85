"""Numbers and tables for people, on a terminal and in a page."""

import textwrap

import results

HEAD_WIDTH = 16  # of a column's title, which is wrapped


def number(value):
    """Three significant digits, thousands apart."""
    size = abs(value)
    if size >= 100 or value == 0:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3g}"
    return f"{value:.1e}"


def span(summary):
    return f"{number(summary.low)}…{number(summary.high)}"


def cell(summary):
    """A median with its spread; a figure of one round has none."""
    if summary is None:
        return "–"
    text = number(summary.median)
    return f"{text} ±{summary.spread:.0%}" if summary.rounds > 1 and summary.spread >= 0.005 else text


def shown_metrics(benchmark, point):
    """Those that anybody has a figure for."""
    return [metric for metric in benchmark["metrics"]
            if any(metric["name"] in place["summary"] for place in point["contenders"].values())]


def head(metric):
    return f"{metric['title']} {metric['unit']}".strip()


def rows(benchmark, point, metrics):
    """A table's lines: one a contender, limits first."""
    contenders = sorted(point["contenders"].items(), key=lambda item: benchmark["contenders"][item[0]]["kind"] != "limit")
    for name, place in contenders:
        if not place["samples"]:
            continue
        kind = benchmark["contenders"][name]["kind"]
        yield [name + (" (limit)" if kind == "limit" else ""), *(cell(results.summary(place, metric["name"])) for metric in metrics)]


def aligned(lines, indent="  "):
    """Text columns under a head of several rows: the first to the left, the others to the right."""
    head = [textwrap.wrap(cell, HEAD_WIDTH, break_long_words=False) or [""] for cell in lines[0]]
    depth = max(map(len, head))
    heads = [[cell[row - depth + len(cell)] if row >= depth - len(cell) else "" for cell in head] for row in range(depth)]
    widths = [max(len(line[at]) for line in [*heads, *lines[1:]]) for at in range(len(head))]
    out = [indent + "  ".join(text.ljust(width) if column == 0 else text.rjust(width) for column, (text, width) in enumerate(zip(line, widths))).rstrip()
           for line in [*heads, *lines[1:]]]
    out.insert(depth, indent + "  ".join("-" * width for width in widths))
    return out

"""A result for the terminal."""

import bars
import machine
import tables

COLUMNS = 6  # of figures; the page and the JSON have all


def heading(report):
    rounds, versions = report["options"]["rounds"], report["versions"]
    known = [f"commit {versions['commit'] or '?'}", versions["client"], versions["librdkafka"], f"Apache Kafka {versions['apache_kafka']}"]
    lines = [f"{report['date']}  {machine.in_words(report['machine'])}",
             f"{', '.join(filter(None, known))}; medians of {rounds} round(s), ± half of what they went over"]
    if report["options"]["quick"]:
        lines.append("quick: too little was moved to quote a figure")
    if not report["complete"]:
        lines.append(f"not complete: {report['why']}")
    lines += [f"FAILED {one['benchmark']}: {one['why']}" for one in report["failures"]]
    return lines


def promises(report):
    """Those of which the result says anything."""
    head, rows = bars.table(report)
    measured = [row for row in rows if row[-1] != "not measured"]
    return tables.aligned([head, *measured]) if measured else ["  none measured"]


def text(report):
    lines = heading(report)
    for benchmark in report["benchmarks"]:
        lines += ["", f"{benchmark['name']}: {benchmark['question']}"]
        for point in benchmark["points"]:
            metrics = tables.shown_metrics(benchmark, point)[:COLUMNS]
            if not metrics:
                continue
            lines += ["", f"  {benchmark['axis']['title']} {point['label']}"]
            lines += tables.aligned([["", *map(tables.head, metrics)], *tables.rows(benchmark, point, metrics)])
    return "\n".join(lines + ["", "promises"] + promises(report))

"""The announcement's table: what is claimed, what Apache Kafka and we were measured at. What no result has is not measured."""

import dataclasses

import results
import tables

NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Figure:
    """Where a figure is found: benchmark, contender, metric, and the point, or "best" over the points. `scale` turns it into `unit`."""

    benchmark: str
    contender: str
    metric: str
    point: str
    unit: str
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Row:
    what: str
    claim: str
    ours: tuple = ()
    apache: tuple = ()
    third: tuple = ()  # HDFS with Flume


def _flume(benchmark, metric, point, unit, scale=1.0):
    return Figure(benchmark, "HDFS with Flume", metric, point, unit, scale)


def _latency(contender):
    return tuple(Figure("latency", contender, "p999_us", point, "ms p99.9", 0.001) for point in ("1,000/s", "10,000/s"))


ROWS = (
    Row("throughput, read", "about 2 GB/s; plain Kafka 500 MB/s; HDFS with Flume 100 MB/s",
        (Figure("consume-hot", "one-sided", "mb_s", "best", "MB/s"), Figure("consume-hot", "tcp", "mb_s", "best", "MB/s by TCP")),
        (Figure("consume-hot", "librdkafka, Apache", "mb_s", "best", "MB/s"),), (_flume("hdfs-flume", "read_mb_s", "best", "MB/s"),)),
    Row("throughput, written", "the same", (Figure("produce", "ours", "mb_s", "best", "MB/s"), Figure("produce", "librdkafka, ours", "mb_s", "best", "MB/s by librdkafka")),
        (Figure("produce", "librdkafka, Apache", "mb_s", "best", "MB/s"),), (_flume("hdfs-flume", "write_mb_s", "best", "MB/s"),)),
    Row("records accepted", "a million a second by a cluster", (Figure("produce", "ours", "records_s", "best", "records/s"), Figure("produce", "librdkafka, ours", "records_s", "best", "records/s by librdkafka")),
        (Figure("produce", "librdkafka, Apache", "records_s", "best", "records/s"),), (_flume("hdfs-flume", "write_records_s", "best", "events/s"),)),
    Row("latency, end to end", "below 10 ms; plain Kafka 100 ms; HDFS with Flume seconds", _latency("one-sided") + _latency("tcp")[1:], _latency("librdkafka, Apache"),
        (_flume("hdfs-flume-latency", "p999_us", "1,000/s", "ms p99.9 where open files are read", 0.001),
         _flume("hdfs-flume-latency", "closed_p50_s", "1,000/s", "s median where closed files are"))),
    Row("scaling", "brokers added at will, growth within seconds; plain Kafka automatic; HDFS with Flume by hand",
        (Figure("start", "ours, clean", "serves_s", "2 GiB", "s until a broker with 2 GiB serves"),), (Figure("start", "Apache, clean", "serves_s", "2 GiB", "s until a broker with 2 GiB serves"),)),
    Row("reliability, a broker's death", "several replicas, several zones; nothing is lost",
        (Figure("start", "ours, killed", "serves_s", "2 GiB", "s to come back after kill -9"),), (Figure("start", "Apache, killed", "serves_s", "2 GiB", "s to come back after kill -9"),)),
    Row("reliability, a zone's death", "several availability zones"),
)


def _found(figure, reports):
    """Its median in the newest result that has it: (value, quick)."""
    for report in sorted(reports, key=lambda one: one["date"], reverse=True):
        values = []
        for benchmark, point, name, place in results.places(report):
            if benchmark["name"] == figure.benchmark and name == figure.contender and figure.point in ("best", point["label"]):
                summary = results.summary(place, figure.metric)
                if summary:
                    better = next(metric["better"] for metric in benchmark["metrics"] if metric["name"] == figure.metric)
                    values.append((summary.median, point["label"], better))
        if values:
            pick = min if values[0][2] == "less" else max
            value, label, _ = pick(values, key=lambda one: one[0])
            return value, label, report["options"]["quick"]
    return None


def _cell(figures, reports):
    told = []
    for figure in figures:
        if found := _found(figure, reports):
            value, label, quick = found
            told.append(f"{tables.number(value * figure.scale)} {figure.unit} ({label}{', quick' if quick else ''})")
    return "; ".join(told) or NOT_MEASURED


def table(reports):
    """(head, rows) of text."""
    return ["", "announced", "CiuicKafka", "Apache Kafka", "HDFS with Flume"], [
        [row.what, row.claim, _cell(row.ours, reports), _cell(row.apache, reports), _cell(row.third, reports)] for row in ROWS]


def text(reports):
    """As Markdown: it goes into documents."""
    head, rows = table(reports)
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in [head, *rows]]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)

"""What the product promises, as ratios of figures of one run; a report says of each whether it holds there."""

import dataclasses

import results
import tables


@dataclasses.dataclass(frozen=True)
class Bar:
    """contender's metric over other's, at each of its points that has both: the worst counts. `other` None: the
    figure itself. `least` or `most` is what it must reach."""

    what: str
    benchmark: str
    contender: str
    metric: str
    other: str | None = None
    least: float | None = None
    most: float | None = None
    points: tuple = ()  # labels; empty: all

    def holds(self, value):
        return value >= self.least if self.least is not None else value <= self.most

    def wanted(self):
        return f"at least {self.least:,.10g}" if self.least is not None else f"at most {self.most:,.10g}"


BARS = (
    Bar("one-sided read, views, over memcpy", "consume-hot", "one-sided", "mb_s", "memcpy", least=1.0),
    Bar("one-sided read, copied out, over memcpy", "consume-hot", "one-sided, copied", "mb_s", "memcpy", least=0.5),
    Bar("one-sided over Apache's TCP consumer, throughput a CPU second", "consume-hot", "one-sided", "mb_cpu_s", "librdkafka, Apache", least=10),
    Bar("one-sided over Apache's TCP consumer, broker CPU a GB", "consume-hot", "one-sided", "broker_cpu_s_gb", "librdkafka, Apache", most=0.01),
    Bar("TCP Fetch over a plain TCP stream", "consume-hot", "tcp", "mb_s", "tcp stream", least=0.8),
    Bar("TCP Fetch over Apache's, a broker CPU second, same librdkafka", "consume-hot", "librdkafka, ours", "mb_broker_cpu_s", "librdkafka, Apache", least=3),
    Bar("slowest of 64 one-sided readers over the fastest", "fan-out", "one-sided", "slowest_share", least=0.5, points=("64",)),
    Bar("produce of 1 KiB records over Apache's, a broker CPU second, same librdkafka", "produce", "librdkafka, ours", "mb_broker_cpu_s", "librdkafka, Apache", least=3, points=("1 KiB",)),
    Bar("records of 100 B a second", "produce", "ours", "records_s", least=1_000_000, points=("100 B",)),
    Bar("one-sided latency over Apache's, median", "latency", "one-sided", "p50_us", "librdkafka, Apache", most=0.1, points=("1,000/s", "10,000/s")),
    Bar("one-sided latency over Apache's, 99th percentile", "latency", "one-sided", "p99_us", "librdkafka, Apache", most=0.2, points=("1,000/s", "10,000/s")),
    Bar("TCP latency over Apache's, 99th percentile", "latency", "tcp", "p99_us", "librdkafka, Apache", most=0.5, points=("1,000/s", "10,000/s")),
    Bar("one-sided, 99.9th percentile at half the highest rate, us", "latency-highest-rate", "one-sided", "half_p999_us", most=10_000),
    Bar("TCP, 99.9th percentile at half the highest rate, us", "latency-highest-rate", "tcp", "half_p999_us", most=10_000),
    Bar("10,000 partitions: seconds to a clean start", "start-partitions", "ours, clean", "serves_s", most=2, points=("10,000",)),
    Bar("idle broker, ms of CPU a second", "idle", "one-sided", "idle_cpu_ms_s", most=5, points=("none",)),
    Bar("100 idle one-sided consumers, ms of CPU a second", "idle", "one-sided", "idle_clients_cpu_ms_s", most=10, points=("100",)),
)


def _values(bar, report):
    """(value, point's label) wherever the report has both figures."""
    for benchmark in report["benchmarks"]:
        if benchmark["name"] != bar.benchmark:
            continue
        for point in benchmark["points"]:
            if bar.points and point["label"] not in bar.points:
                continue
            found = []
            for name in filter(None, (bar.contender, bar.other)):
                place = point["contenders"].get(name)
                found.append(place and results.summary(place, bar.metric))
            if all(found) and (bar.other is None or found[1].median):
                yield found[0].median / (found[1].median if bar.other else 1), point["label"]


def table(report):
    """(head, rows) of text; the worst point of each bar."""
    rows = []
    for bar in BARS:
        values = list(_values(bar, report))
        if not values:
            rows.append([bar.what, bar.wanted(), "–", "not measured"])
            continue
        value, label = (min if bar.least is not None else max)(values)
        rows.append([bar.what, bar.wanted(), f"{tables.number(value)} ({label})", "holds" if bar.holds(value) else "missed"])
    return ["promise", "wanted", "measured, worst point", ""], rows

"""What the product promises, as ratios of figures of one run; a report says of each whether it holds there."""

import dataclasses

import results
import tables


@dataclasses.dataclass(frozen=True)
class Bar:
    """contender's metric over other's, at each of its points that has both: the worst counts. `other` None: over its
    own at the point `base`, or the figure itself. `least` or `most` is what it must reach. `limit`: a contender that does
    no more than the machine makes anybody do; its metric in the contender's place says what could be reached there."""

    what: str
    benchmark: str
    contender: str
    metric: str
    other: str | None = None
    least: float | None = None
    most: float | None = None
    points: tuple = ()  # labels; empty: all
    base: str | None = None  # a point's label
    limit: str | None = None

    def holds(self, value):
        return value >= self.least if self.least is not None else value <= self.most

    def wanted(self):
        return f"at least {self.least:,.10g}" if self.least is not None else f"at most {self.most:,.10g}"


BARS = (
    Bar("one-sided read, views, over memcpy", "consume-hot", "one-sided", "mb_s", "memcpy", least=1.0),
    Bar("one-sided read, copied out, over memcpy", "consume-hot", "one-sided, copied", "mb_s", "memcpy", least=0.5),
    Bar("one-sided over Apache's TCP consumer, throughput a CPU second", "consume-hot", "one-sided", "mb_cpu_s", "librdkafka, Apache", least=10, limit="crc32c"),
    Bar("one-sided over Apache's TCP consumer, broker CPU a GB", "consume-hot", "one-sided", "broker_cpu_s_gb", "librdkafka, Apache", most=0.01),
    Bar("TCP Fetch over a plain TCP stream, CRC unchecked as there", "consume-hot", "tcp, CRC unchecked", "mb_s", "tcp stream", least=0.8),
    Bar("TCP Fetch over a plain TCP stream, CRC checked", "consume-hot", "tcp", "mb_s", "tcp stream", least=0.8),
    Bar("TCP Fetch over Apache's, a broker CPU second, same librdkafka", "consume-hot", "librdkafka, ours", "mb_broker_cpu_s", "librdkafka, Apache", least=3, limit="tcp stream"),
    Bar("64 one-sided readers over one, broker CPU a second", "fan-out", "one-sided", "broker_cpu_share", most=1.25, points=("64",), base="1"),
    Bar("slowest of 64 one-sided readers over the fastest", "fan-out", "one-sided", "slowest_share", least=0.5, points=("64",)),
    Bar("produce of 1 KiB records over Apache's, a broker CPU second, same librdkafka", "produce", "librdkafka, ours", "mb_broker_cpu_s", "librdkafka, Apache", least=3, points=("1 KiB",)),
    Bar("records of 100 B a second", "produce", "ours", "records_s", least=1_000_000, points=("100 B",)),
    Bar("one-sided latency over Apache's, median", "latency", "one-sided", "p50_us", "librdkafka, Apache", most=0.1, points=("1,000/s", "10,000/s"), limit="relay"),
    Bar("one-sided latency over Apache's, 99th percentile", "latency", "one-sided", "p99_us", "librdkafka, Apache", most=0.2, points=("1,000/s", "10,000/s"), limit="relay"),
    Bar("TCP latency over Apache's, 99th percentile", "latency", "tcp", "p99_us", "librdkafka, Apache", most=0.5, points=("1,000/s", "10,000/s"), limit="relay"),
    Bar("one-sided, 99.9th percentile at half the highest rate, us", "latency-highest-rate", "one-sided", "half_p999_us", most=10_000),
    Bar("TCP, 99.9th percentile at half the highest rate, us", "latency-highest-rate", "tcp", "half_p999_us", most=10_000),
    Bar("10,000 partitions: seconds to a clean start", "start-partitions", "ours, clean", "serves_s", most=2, points=("10,000",)),
    Bar("10,000 partitions, 10 GiB: seconds to a start after kill -9", "start-large", "ours, killed", "serves_s", most=5),
    Bar("one-sided read over 1,000 partitions, over that of 10", "consume-partitions", "one-sided", "mb_s", least=0.8, points=("1,000",), base="10"),
    Bar("TCP Fetch over 1,000 partitions, over that of 10", "consume-partitions", "tcp", "mb_s", least=0.8, points=("1,000",), base="10"),
    Bar("produce over 1,000 partitions, over that over 10", "produce-partitions", "ours", "mb_s", least=0.8, points=("1,000",), base="10"),
    Bar("idle broker, ms of CPU a second", "idle", "one-sided", "idle_cpu_ms_s", most=5, points=("none",)),
    Bar("100 idle one-sided consumers, ms of CPU a second", "idle", "one-sided", "idle_clients_cpu_ms_s", most=10, points=("100",)),
)


def _values(bar, report, contender):
    """(value, point's label) wherever the report has all figures, with `contender` in the bar's place."""
    for benchmark in report["benchmarks"]:
        if benchmark["name"] != bar.benchmark:
            continue
        at = {point["label"]: point["contenders"] for point in benchmark["points"]}

        def median(label, name):
            place = at.get(label, {}).get(name)
            found = place and results.summary(place, bar.metric)
            return found.median if found else None

        for label in bar.points or at:
            value = median(label, contender)
            over = median(label, bar.other) if bar.other else median(bar.base, contender) if bar.base else 1
            if value is not None and over:
                yield value / over, label


def table(report):
    """(head, rows) of text; the worst point of each bar, and what the limit allows there."""
    rows = []
    for bar in BARS:
        values = list(_values(bar, report, bar.contender))
        if not values:
            rows.append([bar.what, bar.wanted(), "–", "", "not measured"])
            continue
        value, label = (min if bar.least is not None else max)(values)
        allowed = [limit for limit, where in _values(bar, report, bar.limit) if where == label] if bar.limit else []
        rows.append([bar.what, bar.wanted(), f"{tables.number(value)} ({label})", f"{tables.number(allowed[0])}: {bar.limit}" if allowed else "",
                     "holds" if bar.holds(value) else "missed"])
    return ["promise", "wanted", "measured, worst point", "what the limit reaches there", ""], rows

"""The one list of benchmarks, in the order in which `all` runs them and reports show them. Adding one: a value in a module of
workloads/, and that module here."""

from workloads import consume, group, hdfs_flume, latency, life, mixed, produce, train

BENCHMARKS = tuple(one for module in (consume, produce, mixed, latency, train, group, life, hdfs_flume) for one in module.BENCHMARKS)

# Comparisons with a command of their own: one question each, with more cases than fit here.
BESIDE = (
    ("bench/kafka_vs_apache", "our broker and Apache Kafka under Apache's own perf tools"),
    ("bench/onesided_vs_tcp", "one-sided reads against our own TCP client, streams compared byte by byte"),
    ("bench/verbs_vs_perftest", "READs of the verbs provider against ib_read_bw and ib_read_lat, in the guest"),
)


class Unknown(ValueError):
    """A name that no benchmark has."""


def chosen(names):
    if "all" in names:
        return BENCHMARKS
    known = {one.name: one for one in BENCHMARKS}
    for name in names:
        if name not in known:
            raise Unknown(f"{name}: no such benchmark; `ciuic-bench list` names them: {' '.join(known)} all")
    return tuple(known[name] for name in dict.fromkeys(names))

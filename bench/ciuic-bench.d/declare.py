"""What a benchmark is: one value that says everything about it. registry.py lists them; nothing else knows one by name."""

import dataclasses

MORE, LESS, TOLD = "more", "less", ""  # which way is better; TOLD: a figure that is reported and never judged


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str  # its key in samples and results
    title: str  # for tables and axes
    unit: str
    better: str
    what: str


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting that is not a default, and why. `who` is the program it is given to."""

    who: str
    key: str
    value: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Contender:
    """One side of the comparison. A peer is `driver` (a program of bench/drivers) against `broker`; a limit is what the
    machine could do at most, measured in the same rounds. `words` and `settings` go to the driver."""

    name: str
    what: str
    kind: str = "peer"  # or "limit"
    broker: str = "ours"  # or "apache", "hdfs-flume"; of a limit: ""
    driver: str = "bench_client"
    words: dict = dataclasses.field(default_factory=dict)
    settings: tuple = ()
    reader_settings: tuple = ()  # where one process writes and reads


@dataclasses.dataclass(frozen=True)
class Point:
    """A place on the axis: `parameters` replace those of the benchmark there."""

    label: str
    value: float
    parameters: dict = dataclasses.field(default_factory=dict)
    quick: bool = False  # measured by --quick too


@dataclasses.dataclass(frozen=True)
class Axis:
    title: str
    unit: str
    points: tuple
    logarithmic: bool = True


@dataclasses.dataclass(frozen=True)
class Plot:
    metric: str
    title: str
    logarithmic: bool = False


@dataclasses.dataclass(frozen=True)
class Benchmark:
    name: str
    question: str  # that a user has, and the figures answer
    workload: str  # what is done, in words
    run: type  # a subclass of Workload
    axis: Axis
    contenders: tuple
    metrics: tuple  # the first is what the terminal shows first
    parameters: dict  # of the workload; a point's replace them
    quick: dict = dataclasses.field(default_factory=dict)  # replace both with --quick
    shared_settings: tuple = ()  # of brokers and of who fills topics, each by its `who`
    plots: tuple = ()
    seconds: int = 60  # about how long a run of five rounds takes

    def parameters_at(self, point, quick):
        return {**self.parameters, **point.parameters, **(self.quick if quick else {})}

    def points(self, quick):
        return [point for point in self.axis.points if point.quick or not quick]

    def settings(self):
        """Every setting that its run uses, each once."""
        found = list(self.shared_settings)
        for contender in self.contenders:
            found += [*contender.settings, *contender.reader_settings]
        return list(dict.fromkeys(found))


class Workload:
    """One benchmark's run. Whatever it starts, it starts through `world`, which ends it, whatever happens."""

    def __init__(self, world, benchmark, contenders, quick):
        self.world, self.benchmark, self.contenders, self.quick = world, benchmark, contenders, quick

    def parameters(self, point):
        return self.benchmark.parameters_at(point, self.quick)

    def open(self):
        """Before the first point: brokers. Default: those that the contenders name, each in a folder of its own."""
        self.brokers = {which: self.world.broker(which, self.benchmark.shared_settings)
                        for which in dict.fromkeys(contender.broker for contender in self.contenders) if which}

    def prepare(self, point):
        """Before a point's rounds: its topics."""

    def measure(self, contender, point):
        """One round of one contender: {"metrics": {name: number}} and, where there is one, "histogram" (HdrHistogram, base64)
        and "detail" (what is told of it once: path, library)."""
        raise NotImplementedError

    def count(self, contender, point):
        """A round that counts system calls and is not timed: {metric: number}, empty where they cannot be counted."""
        return {}

    def clean(self, point):
        """After a point."""

    def close(self):
        """After the last point."""
        for broker in getattr(self, "brokers", {}).values():
            self.world.stop(broker)

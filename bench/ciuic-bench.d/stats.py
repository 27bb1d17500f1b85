"""Medians and their spread. A round is one number; the spread is what the rounds went from and to."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Summary:
    median: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self):
        """Half of what the rounds went over, as a share of the median."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else 0.0


def summarize(values):
    return Summary(statistics.median(values), min(values), max(values), len(values))


def summaries(samples):
    """{metric: Summary} of samples, each {metric: number}; a metric may be missing in some."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: summarize([sample[name] for sample in samples if name in sample]) for name in names}


def changed(before, after, better):
    """How much better (above 0) or worse `after` is, as a share of `before`."""
    if before.median == after.median:
        return 0.0
    if not before.median:
        change = float("inf") if after.median > 0 else float("-inf")
    else:
        change = (after.median - before.median) / abs(before.median)
    return change if better == "more" else -change


def apart(before, after):
    """No round of one lies within the other's."""
    return after.low > before.high or after.high < before.low

"""Plain values of the package."""

from typing import NamedTuple, Optional, Tuple

# Places that are not numbers.
BEGINNING = -2  #: the log start
END = -1  #: the readable end, by isolation.level
STORED = -1000  #: the group's committed offset, else auto.offset.reset


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    """One record. `timestamp` is ms since 1970; `key` and `value` are None where Kafka has null; `headers` are pairs of
    name and value, bytes or None."""

    offset: int
    timestamp: int
    key: Optional[bytes]
    value: Optional[bytes]
    headers: Tuple[Tuple[str, Optional[bytes]], ...]
    topic: str
    partition: int


class Path(NamedTuple):
    """How a partition's bytes come: `path` is "undecided", "tcp" or "one-sided"; `provider` of a one-sided one ("shm", …);
    `reason` says why nothing better was taken, empty if nothing better exists; `landing`, after `Consumer.land_in`, begins with
    "direct" or "copied" and says why."""

    path: str
    provider: str
    reason: str
    landing: str


class Metric(NamedTuple):
    name: str
    label: str
    value: int


class Written(NamedTuple):
    """Where a record was written. `offset` is -1 with acks=0, or for a duplicate whose offset is no longer known."""

    topic: str
    partition: int
    offset: int
    timestamp: int

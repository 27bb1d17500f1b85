"""One exception class for each kind of trouble of the C ABI (ciuic_trouble)."""


class CiuicError(Exception):
    """What every error of this package is.

    code: the ciuic_trouble, a negative number. kafka_code: Kafka's error code, 0 where the broker gave none.
    retriable: the same call may work later.
    """

    code = 0

    def __init__(self, text, kafka_code=0, retriable=False):
        super().__init__(text)
        self.kafka_code = kafka_code
        self.retriable = retriable


class InvalidConfig(CiuicError, ValueError):
    """A setting is unknown or has a wrong value; the text names key, value and what is allowed."""

    code = -1


class InvalidArgument(CiuicError, ValueError):
    """An argument cannot be right: no such partition, a negative offset, …"""

    code = -2


class InvalidState(CiuicError, RuntimeError):
    """Not possible now: closed, not subscribed, no group.id, or in use by another thread."""

    code = -3


class TimedOut(CiuicError, TimeoutError):
    """No answer in the time given."""

    code = -4


class Interrupted(CiuicError):
    """`wakeup` was called."""

    code = -5


class QueueFull(CiuicError):
    """Producer: buffer.memory was used up for longer than max.block.ms."""

    code = -6


class ForkedChild(CiuicError, RuntimeError):
    """This process is a forked child of the one that opened the client: open one here, or start children by spawn."""

    code = -7


class BrokerError(CiuicError):
    """The broker answered an error; `kafka_code` says which."""

    code = -8


class Disconnected(CiuicError, ConnectionError):
    """No broker can be reached."""

    code = -9


class Unsupported(CiuicError):
    """The broker lacks an API or a version that this needs."""

    code = -10


class Corrupt(CiuicError):
    """A batch's check failed where it must not, or its records are malformed."""

    code = -11


class NoOneSidedPath(CiuicError):
    """transport=rdma, and no one-sided path can work; the text says why."""

    code = -12


class DataLoss(CiuicError):
    """The wanted offset is gone (auto.offset.reset=none), or a lease ran out under a view: its bytes cannot be vouched for."""

    code = -13


class Fatal(CiuicError):
    """The client cannot go on: open another one."""

    code = -14


BY_CODE = {
    kind.code: kind
    for kind in (InvalidConfig, InvalidArgument, InvalidState, TimedOut, Interrupted, QueueFull, ForkedChild, BrokerError,
                 Disconnected, Unsupported, Corrupt, NoOneSidedPath, DataLoss, Fatal)
}

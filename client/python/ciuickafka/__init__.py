"""CiuicKafka for Python: a Kafka consumer that reads the broker's log by one-sided reads where it can, and a producer.

    import ciuickafka as ck
    consumer = ck.Consumer({"bootstrap.servers": "localhost:9092", "transport": "auto"})
    consumer.assign([("data", 0, ck.BEGINNING)])
    for batch in consumer.poll(1.0):
        for record in batch:
            print(record.offset, record.value)
"""

from . import errors
from ._library import lib as _lib
from .batch import Batch
from .consumer import Consumer
from .errors import (BrokerError, CiuicError, Corrupt, DataLoss, Disconnected, Fatal, ForkedChild, Interrupted,
                     InvalidArgument, InvalidConfig, InvalidState, NoOneSidedPath, QueueFull, TimedOut, Unsupported)
from .producer import Delivery, Producer
from .types import BEGINNING, END, STORED, Metric, Path, Record, TopicPartition, Written

__all__ = [
    "BEGINNING", "END", "STORED", "Batch", "BrokerError", "CiuicError", "Consumer", "Corrupt", "DataLoss", "Delivery",
    "Disconnected", "Fatal", "ForkedChild", "Interrupted", "InvalidArgument", "InvalidConfig", "InvalidState", "Metric",
    "NoOneSidedPath", "Path", "Producer", "QueueFull", "Record", "TimedOut", "TopicPartition", "Unsupported", "Written",
    "errors", "set_log_level", "version",
]

__version__ = _lib.ciuic_version().decode()


def version():
    """The version of the library underneath."""
    return __version__


def set_log_level(level):
    """"debug", "info", "warn", "error" or "off": what the library writes to stderr."""
    if _lib.ciuic_set_log_level(level.encode()) < 0:
        raise InvalidArgument(f"log level '{level}': give debug, info, warn, error or off")

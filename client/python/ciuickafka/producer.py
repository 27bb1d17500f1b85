"""The producer."""

import itertools
import json
import os
import threading
import time
from ctypes import byref, c_int32, sizeof

from . import errors
from ._library import (DeliveryCallback, Header, RecordToSend, call, exception_of, lib, milliseconds, new_error, open_handle,
                       take_text)
from .types import Metric, Written


class Delivery:
    """What becomes of a record: like a future."""

    __slots__ = ("_producer", "_topic", "_done", "_outcome", "_failure", "_callbacks")

    def __init__(self, producer, topic):
        self._producer = producer
        self._topic = topic
        self._done = False
        self._outcome = self._failure = None
        self._callbacks = None

    def done(self):
        return self._done

    def result(self, timeout=None):
        """The Written, or raises why it was not. Waits up to `timeout` seconds (None: for ever), then raises TimedOut."""
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        return self._outcome

    def exception(self, timeout=None):
        """Why the record was not written, or None. Waits like `result`."""
        if not self._done:
            self._producer._wait(self, timeout)
        return self._failure

    def add_done_callback(self, function):
        """function(delivery) once it is done, on the producer's thread; at once if it is already. Be short in it."""
        with self._producer._changed:
            if not self._done:
                self._callbacks = (self._callbacks or []) + [function]
                return
        function(self)


class Producer:
    """Writes records in batches, exactly once and in order a partition (enable.idempotence, the default). Any thread may
    send. `config` has Kafka's names: bootstrap.servers, compression.type, linger.ms, …; see docs/configuration.md.

        with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
            producer.send("data", b"value", key=b"key").result()
    """

    def __init__(self, config):
        self._handle = None
        self._pid = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._users = 0  # calls under way, so that close does not free under them
        self._pending = {}
        self._ids = itertools.count(1)
        self._delivered = DeliveryCallback(self._on_delivery)
        self._handle = open_handle(lib.ciuic_producer_open, config)

    def send(self, topic, value, key=None, partition=None, timestamp=None, headers=None):
        """Queues a record; returns a Delivery. `value` and `key` are bytes-like or None (null); `timestamp` is ms since 1970,
        default now; `headers` are (name, bytes or None) pairs, or a dict. Blocks up to max.block.ms for topic metadata and room.
        Errors: InvalidArgument (no such partition), QueueFull, TimedOut, BrokerError (too large, unknown topic, …), Fatal."""
        record = RecordToSend(size=sizeof(RecordToSend), partition=-1 if partition is None else partition, topic=topic.encode(),
                              timestamp=-1 if timestamp is None else timestamp)
        if key is not None:
            key = _as_bytes("key", key)
            record.key, record.key_length = key, len(key)
        if value is not None:
            value = _as_bytes("value", value)
            record.value, record.value_length = value, len(value)
        if headers:
            pairs = list(headers.items() if isinstance(headers, dict) else headers)
            array = (Header * len(pairs))()
            for header, (name, content) in zip(array, pairs):
                name = name.encode()
                header.key, header.key_length = name, len(name)
                if content is not None:
                    content = _as_bytes("header value", content)
                    header.value, header.value_length = content, len(content)
            record.headers, record.header_count = array, len(pairs)
        delivery = Delivery(self, topic)
        number = next(self._ids)
        self._pending[number] = delivery
        try:
            self._call(lib.ciuic_producer_send, byref(record), self._delivered, number)
        except BaseException:
            self._pending.pop(number, None)
            raise
        return delivery

    def flush(self, timeout=120.0):
        """Sends what is queued and waits until every delivery is done. Errors: TimedOut."""
        self._call(lib.ciuic_producer_flush, milliseconds(timeout))

    def partition_count(self, topic, timeout=30.0):
        count = c_int32()
        self._call(lib.ciuic_producer_partition_count, topic.encode(), milliseconds(timeout), byref(count))
        return count.value

    def metrics(self):
        """A list of Metric."""
        handle = self._use()
        try:
            return [Metric(**one) for one in json.loads(take_text(lib.ciuic_producer_metrics_json(handle)))]
        finally:
            self._unuse()

    def close(self, timeout=120.0):
        """Flushes, then ends; what is not sent in time fails with TimedOut, here and in its delivery. Idempotent; in a forked
        child it does nothing."""
        if os.getpid() != self._pid:
            self._handle = None
            return
        with self._changed:
            handle, self._handle = self._handle, None
            if handle is None:
                return
            self._waiting += 1
            while self._users:
                self._changed.wait()
            self._waiting -= 1
        call(lib.ciuic_producer_close, handle, milliseconds(timeout))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if lib is not None and getattr(self, "_handle", None) is not None:
            self.close(0)

    # -- inside

    def _use(self):
        with self._changed:
            if self._handle is None:
                raise errors.InvalidState("the producer is closed")
            self._users += 1
            return self._handle

    def _unuse(self):
        with self._changed:
            self._users -= 1
            if self._waiting:
                self._changed.notify_all()

    def _call(self, function, *arguments):
        handle = self._use()
        try:
            call(function, handle, *arguments)
        finally:
            self._unuse()

    def _on_delivery(self, number, partition, offset, timestamp, error):
        delivery = self._pending.pop(number)
        if error:
            delivery._failure = exception_of(error.contents)
        else:
            delivery._outcome = Written(delivery._topic, partition, offset, timestamp)
        with self._changed:
            delivery._done = True
            callbacks, delivery._callbacks = delivery._callbacks, None
            if self._waiting:
                self._changed.notify_all()
        for function in callbacks or ():
            function(delivery)  # what it raises is printed by ctypes; there is nobody to hand it to

    def _wait(self, delivery, timeout):
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            try:
                while not delivery._done:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise errors.TimedOut(f"the record for {delivery._topic} was not answered within {timeout} s", retriable=True)
                    self._changed.wait(left)
            finally:
                self._waiting -= 1


def _as_bytes(what, given):
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        raise TypeError(f"the {what} is a str; encode it first: {what}.encode()")
    return bytes(memoryview(given))

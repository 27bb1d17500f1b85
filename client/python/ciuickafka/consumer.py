"""The consumer."""

import json
import os
import threading
import time
from ctypes import POINTER, addressof, byref, c_char_p, c_int32, c_int64, c_size_t, c_ubyte, c_void_p

from . import errors
from ._library import (AssignmentVisitor, PartitionOffset, RebalanceCallback, call, exception_of, lib, milliseconds,
                       new_error, open_handle, take_text)
from .batch import Batch
from .types import STORED, Metric, Path, TopicPartition

# A call into the library cannot see Ctrl-C; a long poll is made of calls of at most this many ms.
SLICE_MS = 200


def _as_array(partitions, offset=STORED):
    """(topic, partition) or (topic, partition, offset) tuples, or a dict {(topic, partition): offset}, as a C array."""
    if isinstance(partitions, dict):
        partitions = [(topic, partition, at) for (topic, partition), at in partitions.items()]
    given = list(partitions)
    array = (PartitionOffset * max(len(given), 1))()
    for entry, one in zip(array, given):
        entry.topic = one[0].encode()
        entry.partition = one[1]
        entry.offset = one[2] if len(one) > 2 else offset
    return array, len(given)


HOST, CUDA = 0, 1  # ciuic_memory


def _memory_of(memory):
    """(kind, address, bytes, what keeps it) of an array or buffer."""
    device = getattr(memory, "__cuda_array_interface__", None)
    if device is not None:
        if device.get("strides") is not None:
            raise errors.InvalidArgument("the array is not contiguous: land in one that is")
        size = int(device["typestr"][2:])
        for extent in device["shape"]:
            size *= extent
        return CUDA, device["data"][0], size, memory
    if hasattr(memory, "data_ptr"):  # a tensor of the host: not all of torch's types have a buffer
        if not memory.is_contiguous() or memory.device.type != "cpu":
            raise errors.InvalidArgument(f"a tensor of {memory.device} that is {'' if memory.is_contiguous() else 'not '}contiguous: "
                                         "land in a contiguous one of the host or of a CUDA device")
        return HOST, memory.data_ptr(), memory.numel() * memory.element_size(), memory
    try:
        view = memoryview(memory).cast("B")
        held = (c_ubyte * len(view)).from_buffer(view)
    except (TypeError, BufferError, ValueError) as problem:
        raise errors.InvalidArgument(f"{type(memory).__name__}: land in a contiguous, writable buffer or in a tensor ({problem})") from None
    return HOST, addressof(held), len(view), held


class Consumer:
    """Reads topics. `config` has Kafka's names: bootstrap.servers, group.id, transport (auto, rdma, tcp), …; see
    docs/configuration.md. One thread at a time, but for `wakeup`, `lag`, `path`, `metrics` and batches. Times are in seconds.

        with Consumer({"bootstrap.servers": "localhost:9092"}) as consumer:
            consumer.assign([("data", 0, BEGINNING)])
            for batch in consumer.poll(1.0):
                for record in batch:
                    print(record.offset, record.value)
    """

    def __init__(self, config):
        self._handle = None
        self._pid = os.getpid()
        self._using = threading.RLock()  # never waited for: it tells when a second thread comes
        self._any = threading.Lock()  # held by calls of any thread, so that close does not free under them
        self._callbacks = (None, None, None)
        self._callback_failure = None
        self._landing = None  # memory that batches lie in
        # One for good: the library may hold on to it after an unsubscribe.
        self._rebalanced = RebalanceCallback(self._on_rebalance)
        self._error = new_error()
        self._array = POINTER(c_void_p)()
        self._count = c_size_t()
        self._handle = self._shared = open_handle(lib.ciuic_consumer_open, config)

    # -- what to read

    def land_in(self, memory):
        """Puts the batches of every later poll into `memory`: a contiguous tensor or array of the host or of a CUDA device
        (torch, CuPy, numba), or anything with a writable buffer. READs go straight there where the card reaches it, else bytes
        are copied; `path` says which and why. Once, before assign and subscribe. It is kept while the consumer or a batch is.
        A `poll` that finds no room, for batches in it are still held, waits, then raises QueueFull; so does, at once, one that
        meets a batch larger than the memory. Errors: InvalidArgument, InvalidState, Unsupported (no driver)."""
        kind, address, size, keep = _memory_of(memory)
        self._call(lib.ciuic_consumer_land_in, kind, address, size)
        self._landing = keep

    def assign(self, partitions):
        """Replaces the assignment: (topic, partition, offset) tuples; an offset may be BEGINNING, END or STORED, the last being
        the default: the group's committed offset, else auto.offset.reset."""
        array, count = _as_array(partitions)
        self._call(lib.ciuic_consumer_assign, array, count)

    def subscribe(self, topics, on_assigned=None, on_revoked=None, on_lost=None):
        """Joins group.id; names that begin with '^' are regular expressions. The callbacks get a list of TopicPartition, run
        inside `poll`, `unsubscribe` and `close`, and may call the consumer; on_lost (no chance to commit) is on_revoked if not
        given. What a callback raises comes out of the call that it ran in."""
        names = [topics] if isinstance(topics, str) else list(topics)
        array = (c_char_p * max(len(names), 1))(*[name.encode() for name in names])
        self._callbacks = (on_assigned, on_revoked, on_lost or on_revoked)
        self._call(lib.ciuic_consumer_subscribe, array, len(names), self._rebalanced, None)

    def unsubscribe(self):
        self._call(lib.ciuic_consumer_unsubscribe)

    def assignment(self):
        """{TopicPartition: position, or None where it is not known yet}"""
        found = {}

        def visit(_, entry):
            at = entry.contents
            found[TopicPartition(at.topic.decode(), at.partition)] = at.offset if at.offset >= 0 else None

        self._call(lib.ciuic_consumer_assignment, AssignmentVisitor(visit), None)
        return found

    # -- reading

    def poll(self, timeout=None):
        """A list of batches of one partition in order; empty after `timeout` seconds, None waits for ever.
        Errors: BrokerError, DataLoss, Corrupt, NoOneSidedPath, Interrupted, Fatal; the next poll goes on where it can."""
        deadline = None if timeout is None else time.monotonic() + max(timeout, 0)
        self._enter()
        try:
            while True:
                left = SLICE_MS if deadline is None else milliseconds(max(deadline - time.monotonic(), 0))
                code = lib.ciuic_poll(self._handle, min(left, SLICE_MS), byref(self._array), byref(self._count), byref(self._error))
                got = [Batch(lib.ciuic_batch_retain(self._array[i]), self._landing) for i in range(self._count.value)] if code >= 0 else []
                if self._callback_failure is not None:
                    if got:  # not handed out: they come again
                        call(lib.ciuic_consumer_seek, self._handle, got[0].topic.encode(), got[0].partition, got[0].first_wanted_offset)
                    self._raise_from_callback()
                if code < 0:
                    trouble = exception_of(self._error)
                    if isinstance(trouble, errors.QueueFull) and trouble.retriable and (deadline is None or left > SLICE_MS):
                        continue  # there may be room before the time is over
                    raise trouble
                if got:
                    return got
                if left <= SLICE_MS and deadline is not None:
                    return []
        finally:
            self._using.release()

    def __iter__(self):
        """Records for ever, partition after partition as they come."""
        while True:
            for batch in self.poll():
                yield from batch

    def wakeup(self):
        """Makes a poll under way, or the next one, raise Interrupted. Any thread."""
        with self._any:
            if self._shared:
                lib.ciuic_consumer_wakeup(self._shared)

    # -- where to read

    def seek(self, topic, partition, offset):
        """To a number, BEGINNING or END; takes effect with the next poll."""
        self._call(lib.ciuic_consumer_seek, topic.encode(), partition, offset)

    def seek_to_time(self, topic, partition, timestamp_ms, timeout=30.0):
        """To the first record at or after the time; to the end where there is none."""
        self._call(lib.ciuic_consumer_seek_to_time, topic.encode(), partition, timestamp_ms, milliseconds(timeout))

    def position(self, topic, partition, timeout=30.0):
        """The next offset that poll will give."""
        return self._number(lib.ciuic_consumer_position, c_int64(), topic.encode(), partition, milliseconds(timeout))

    def pause(self, partitions):
        """`poll` gives nothing of these (topic, partition) until `resume`."""
        self._call(lib.ciuic_consumer_pause, *_as_array(partitions))

    def resume(self, partitions):
        self._call(lib.ciuic_consumer_resume, *_as_array(partitions))

    # -- commits

    def commit(self, offsets=None, timeout=30.0):
        """Commits what the last poll returned, or `offsets`: {(topic, partition): next offset} or tuples. Waits for the broker;
        timeout=0 sends and goes on."""
        array, count = _as_array(offsets if offsets is not None else ())
        if offsets is not None and count == 0:
            return
        self._call(lib.ciuic_consumer_commit, array, count, milliseconds(timeout))

    def committed(self, partitions, timeout=30.0):
        """{TopicPartition: committed offset, or None}"""
        return self._offsets(lib.ciuic_consumer_committed, partitions, timeout)

    # -- questions

    def beginning_offsets(self, partitions, timeout=30.0):
        """{TopicPartition: first readable offset}"""
        return self._offsets(lib.ciuic_consumer_beginning_offsets, partitions, timeout)

    def end_offsets(self, partitions, timeout=30.0):
        """{TopicPartition: offset after the last readable one, by isolation.level}"""
        return self._offsets(lib.ciuic_consumer_end_offsets, partitions, timeout)

    def offsets_for_times(self, times, timeout=30.0):
        """{(topic, partition): ms} -> {TopicPartition: first offset at or after that time, or None}"""
        return self._offsets(lib.ciuic_consumer_offsets_for_times, times, timeout)

    def partition_count(self, topic, timeout=30.0):
        return self._number(lib.ciuic_consumer_partition_count, c_int32(), topic.encode(), milliseconds(timeout))

    def topics(self, timeout=30.0):
        """What the broker tells of its topics, as a list of dicts."""
        error = new_error()
        self._enter()
        try:
            text = lib.ciuic_consumer_topics_json(self._handle, milliseconds(timeout), byref(error))
        finally:
            self._using.release()
        if not text and error.code:
            raise exception_of(error)
        return json.loads(take_text(text))

    def lag(self, topic, partition):
        """Records between position and readable end; None: not known yet. Any thread."""
        records = c_int64()
        with self._any:
            call(lib.ciuic_consumer_lag, self._open_to_any(), topic.encode(), partition, byref(records))
        return records.value if records.value >= 0 else None

    def path(self, topic, partition):
        """How the partition's bytes come, and why not better. Any thread."""
        with self._any:
            return Path(**json.loads(take_text(lib.ciuic_consumer_path_json(self._open_to_any(), topic.encode(), partition))))

    def metrics(self):
        """A list of Metric. Any thread."""
        with self._any:
            return [Metric(**one) for one in json.loads(take_text(lib.ciuic_consumer_metrics_json(self._open_to_any())))]

    # -- the end

    def close(self):
        """Leaves the group after a last commit (enable.auto.commit) and releases leases. Batches stay usable, but a lease is
        renewed no more. Idempotent; in a forked child it does nothing."""
        if self._handle is None:
            return
        if os.getpid() != self._pid:
            self._handle = self._shared = None
            return
        self._enter()
        try:
            with self._any:
                self._shared = None
            handle = self._handle
            lib.ciuic_consumer_close(handle)  # callbacks may still use self._handle
            self._handle = None
        finally:
            self._using.release()
        self._raise_from_callback()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if lib is not None and getattr(self, "_handle", None) is not None:
            self.close()

    # -- inside

    def _enter(self):
        """Every call that does so releases `_using`."""
        if not self._using.acquire(blocking=False):
            raise errors.InvalidState("the consumer is in use by another thread; one thread at a time, but for wakeup, lag, path and metrics")
        if self._handle is None:
            self._using.release()
            raise errors.InvalidState("the consumer is closed")

    def _open_to_any(self):
        if self._shared is None:
            raise errors.InvalidState("the consumer is closed")
        return self._shared

    def _call(self, function, *arguments):
        self._enter()
        try:
            call(function, self._handle, *arguments)
        finally:
            self._using.release()
        self._raise_from_callback()

    def _number(self, function, out, *arguments):
        self._call(function, *arguments, byref(out))
        return out.value

    def _offsets(self, function, partitions, timeout):
        array, count = _as_array(partitions)
        self._call(function, array, count, milliseconds(timeout))
        return {TopicPartition(at.topic.decode(), at.partition): at.offset if at.offset >= 0 else None for at in array[:count]}

    def _on_rebalance(self, _, event, partitions, count):
        callback = self._callbacks[event] if 0 <= event < 3 else None
        if callback is None:
            return
        try:
            callback([TopicPartition(partitions[i].topic.decode(), partitions[i].partition) for i in range(count)])
        except BaseException as problem:  # an exception cannot cross the library; it comes out of the call behind it
            self._callback_failure = problem

    def _raise_from_callback(self):
        if self._callback_failure is not None:
            problem, self._callback_failure = self._callback_failure, None
            raise problem

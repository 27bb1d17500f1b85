"""Records out of batches: chunks of C structs (ciuic_reader_next_many) become tuples with one `struct` walk a chunk."""

import ctypes
import struct
from ctypes import byref, c_ubyte, sizeof

from . import errors
from ._library import RecordOut, exception_of, lib, new_error
from .types import Record

CHUNK = 1024
LARGE = 4096  # bytes a record: from here on cutting without an intermediate copy is cheaper

_record = struct.Struct("=IiqqQQQQQQ")
_header = struct.Struct("=QQQQ")
assert _record.size == sizeof(RecordOut), "ciuic_record has another layout on this machine"


class _Reader:
    """A ciuic_reader with its array and error; one iteration at a time uses it."""

    def __init__(self):
        self.handle = lib.ciuic_reader_new()
        if not self.handle:
            raise MemoryError("ciuic_reader_new")
        self.records = (RecordOut * CHUNK)()
        self.records[0].size = sizeof(RecordOut)
        self.view = memoryview(self.records).cast("B")
        self.error = new_error()

    def open(self, batch_handle):
        if lib.ciuic_reader_open(self.handle, batch_handle, byref(self.error)) < 0:
            raise exception_of(self.error)

    def next_chunk(self):
        """Tuples of the next records' fields; empty at the end."""
        count = lib.ciuic_reader_next_many(self.handle, self.records, CHUNK, byref(self.error))
        if count < 0:
            raise exception_of(self.error)
        return list(_record.iter_unpack(self.view[:count * _record.size]))

    def let_go(self):
        lib.ciuic_reader_open(self.handle, None, None)

    def __del__(self):
        if lib is not None and getattr(self, "handle", None):
            lib.ciuic_reader_free(self.handle)


_idle = []  # append and pop are atomic


def _span(fields):
    """The addresses between which a chunk's keys, values and headers lie; (0, 0) if there are none."""
    low = high = 0  # an empty key or value may lie anywhere; cutting nothing out of nowhere gives b""
    for _, _, _, _, key, key_length, value, value_length, _, _ in fields:
        if key_length or value_length:
            low = key if key_length else value
            break
    for _, _, _, _, key, key_length, value, value_length, _, _ in reversed(fields):
        if key_length or value_length:
            high = value + value_length if value_length else key + key_length
            break
    return low, high


def _headers(address, count):
    pairs = []
    for key, key_length, value, value_length in _header.iter_unpack(ctypes.string_at(address, count * _header.size)):
        pairs.append((ctypes.string_at(key, key_length).decode("utf-8", "replace"),
                      ctypes.string_at(value, value_length) if value else None))
    return tuple(pairs)


def records(batch, copy):
    """Yields the batch's records. As copies: raises DataLoss where the batch's lease ran out before a chunk was copied. As
    views: they hold the batch and the reader whose buffer they may lie in."""
    reader = _idle.pop() if copy and _idle else _Reader()
    try:
        reader.open(batch._held.handle)
        topic, partition = batch.topic, batch.partition
        make = tuple.__new__
        while True:
            fields = reader.next_chunk()
            if not fields:
                return
            low, high = _span(fields)
            made = []
            if low == 0:
                data = b"" if copy else memoryview(b"")
            elif copy and high - low < LARGE * len(fields):
                data = ctypes.string_at(low, high - low)
            else:
                array = (c_ubyte * (high - low)).from_address(low)
                array.held = (reader, batch._held)
                data = memoryview(array).cast("B").toreadonly()
            if copy and low != 0 and type(data) is not bytes:
                for _, _, offset, timestamp, key, key_length, value, value_length, headers, header_count in fields:
                    made.append(make(Record, (offset, timestamp, data[key - low:key - low + key_length].tobytes() if key else None,
                                              data[value - low:value - low + value_length].tobytes() if value else None,
                                              _headers(headers, header_count) if header_count else (), topic, partition)))
                del data, array
            else:
                for _, _, offset, timestamp, key, key_length, value, value_length, headers, header_count in fields:
                    made.append(make(Record, (offset, timestamp, data[key - low:key - low + key_length] if key else None,
                                              data[value - low:value - low + value_length] if value else None,
                                              _headers(headers, header_count) if header_count else (), topic, partition)))
            # Only now, after the copy, is it known that the bytes were still the log's.
            if copy and not batch.in_force():
                raise errors.DataLoss(f"{topic}/{partition}: the lease on offsets {batch.base_offset} … {batch.last_offset} ran out "
                                      "while they were read; seek to the offset wanted and poll again")
            yield from made
    finally:
        if copy:
            reader.let_go()
            _idle.append(reader)

"""libciuic.so: where it is, what it exports (client/include/ciuic/ciuic.h, the same order), its errors as exceptions."""

import ctypes
import os
import pathlib
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p,
                    sizeof)

from . import errors

ABI_VERSION = 1
NAME = "libciuic.so"


class Error(Structure):
    _fields_ = [("size", c_uint32), ("code", c_int32), ("kafka_code", c_int32), ("retriable", c_int32), ("text", c_char * 512)]


class ConfigEntry(Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class PartitionOffset(Structure):
    _fields_ = [("topic", c_char_p), ("partition", c_int32), ("offset", c_int64)]


class BatchInfo(Structure):
    _fields_ = [("size", c_uint32), ("partition", c_int32), ("topic", c_char_p), ("bytes", c_void_p), ("length", c_size_t),
                ("base_offset", c_int64), ("last_offset", c_int64), ("first_wanted_offset", c_int64),
                ("max_timestamp", c_int64), ("leader_epoch", c_int32), ("record_count", c_int32), ("compression", c_char_p),
                ("in_place", c_int32), ("memory", c_int32), ("device_bytes", c_uint64)]


class Header(Structure):
    _fields_ = [("key", c_char_p), ("key_length", c_size_t), ("value", c_char_p), ("value_length", c_size_t)]


class RecordOut(Structure):
    """ciuic_record; `_records.py` reads an array of them with `struct` by the same layout."""

    _fields_ = [("size", c_uint32), ("timestamp_type", c_int32), ("offset", c_int64), ("timestamp", c_int64),
                ("key", c_void_p), ("key_length", c_size_t), ("value", c_void_p), ("value_length", c_size_t),
                ("headers", c_void_p), ("header_count", c_size_t)]


class RecordToSend(Structure):
    _fields_ = [("size", c_uint32), ("partition", c_int32), ("topic", c_char_p), ("key", c_char_p), ("key_length", c_size_t),
                ("value", c_char_p), ("value_length", c_size_t), ("timestamp", c_int64), ("headers", POINTER(Header)),
                ("header_count", c_size_t)]


RebalanceCallback = CFUNCTYPE(None, c_void_p, c_int32, POINTER(PartitionOffset), c_size_t)
AssignmentVisitor = CFUNCTYPE(None, c_void_p, POINTER(PartitionOffset))
DeliveryCallback = CFUNCTYPE(None, c_void_p, c_int32, c_int64, c_int64, POINTER(Error))

_handle = c_void_p
_error = POINTER(Error)
_partitions = POINTER(PartitionOffset)
_number_out = POINTER(c_int64)
_count_out = POINTER(c_int32)

# name: result, arguments
_FUNCTIONS = {
    "ciuic_abi_version": (c_uint32,),
    "ciuic_version": (c_char_p,),
    "ciuic_set_log_level": (c_int32, c_char_p),
    "ciuic_consumer_open": (c_int32, POINTER(ConfigEntry), c_size_t, POINTER(_handle), _error),
    "ciuic_consumer_close": (None, _handle),
    "ciuic_consumer_land_in": (c_int32, _handle, c_int32, c_void_p, c_size_t, _error),
    "ciuic_consumer_assign": (c_int32, _handle, _partitions, c_size_t, _error),
    "ciuic_consumer_subscribe": (c_int32, _handle, POINTER(c_char_p), c_size_t, RebalanceCallback, c_void_p, _error),
    "ciuic_consumer_unsubscribe": (c_int32, _handle, _error),
    "ciuic_consumer_assignment": (c_int32, _handle, AssignmentVisitor, c_void_p, _error),
    "ciuic_poll": (c_int32, _handle, c_int64, POINTER(POINTER(c_void_p)), POINTER(c_size_t), _error),
    "ciuic_consumer_wakeup": (None, _handle),
    "ciuic_consumer_seek": (c_int32, _handle, c_char_p, c_int32, c_int64, _error),
    "ciuic_consumer_seek_to_time": (c_int32, _handle, c_char_p, c_int32, c_int64, c_int64, _error),
    "ciuic_consumer_position": (c_int32, _handle, c_char_p, c_int32, c_int64, _number_out, _error),
    "ciuic_consumer_pause": (c_int32, _handle, _partitions, c_size_t, _error),
    "ciuic_consumer_resume": (c_int32, _handle, _partitions, c_size_t, _error),
    "ciuic_consumer_commit": (c_int32, _handle, _partitions, c_size_t, c_int64, _error),
    "ciuic_consumer_committed": (c_int32, _handle, _partitions, c_size_t, c_int64, _error),
    "ciuic_consumer_beginning_offsets": (c_int32, _handle, _partitions, c_size_t, c_int64, _error),
    "ciuic_consumer_end_offsets": (c_int32, _handle, _partitions, c_size_t, c_int64, _error),
    "ciuic_consumer_offsets_for_times": (c_int32, _handle, _partitions, c_size_t, c_int64, _error),
    "ciuic_consumer_partition_count": (c_int32, _handle, c_char_p, c_int64, _count_out, _error),
    "ciuic_consumer_lag": (c_int32, _handle, c_char_p, c_int32, _number_out, _error),
    # Texts come back as bare pointers: a c_char_p result would lose what ciuic_text_free needs.
    "ciuic_consumer_path_json": (c_void_p, _handle, c_char_p, c_int32),
    "ciuic_consumer_metrics_json": (c_void_p, _handle),
    "ciuic_consumer_topics_json": (c_void_p, _handle, c_int64, _error),
    "ciuic_text_free": (None, c_void_p),
    "ciuic_batch_info_get": (c_int32, _handle, POINTER(BatchInfo)),
    "ciuic_batch_retain": (c_void_p, _handle),
    "ciuic_batch_free": (None, _handle),
    "ciuic_batch_in_force": (c_int32, _handle),
    "ciuic_batch_copy": (c_int32, _handle, POINTER(_handle), _error),
    "ciuic_reader_new": (c_void_p,),
    "ciuic_reader_free": (None, _handle),
    "ciuic_reader_open": (c_int32, _handle, _handle, _error),
    "ciuic_reader_next_many": (c_int32, _handle, POINTER(RecordOut), c_size_t, _error),
    "ciuic_producer_open": (c_int32, POINTER(ConfigEntry), c_size_t, POINTER(_handle), _error),
    "ciuic_producer_close": (c_int32, _handle, c_int64, _error),
    "ciuic_producer_send": (c_int32, _handle, POINTER(RecordToSend), DeliveryCallback, c_void_p, _error),
    "ciuic_producer_flush": (c_int32, _handle, c_int64, _error),
    "ciuic_producer_partition_count": (c_int32, _handle, c_char_p, c_int64, _count_out, _error),
    "ciuic_producer_metrics_json": (c_void_p, _handle),
}


def _candidates():
    named = os.environ.get("CIUIC_LIBRARY")
    if named:
        return [named]  # what was asked for, or nothing
    package = pathlib.Path(__file__).resolve().parent
    found = [package / NAME]
    if len(package.parents) > 2:
        found.append(package.parents[2] / "build" / "release" / "lib" / NAME)
    return [str(path) for path in found if path.is_file()] + [NAME]


def _load():
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as problem:
            tried.append(str(problem))
            continue
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None:
                raise ImportError(f"{path} has no {name}: it is older than this package; build both from the same source")
            function.restype = result
            function.argtypes = arguments
        version = library.ciuic_abi_version()
        if version != ABI_VERSION:
            raise ImportError(f"{path} has ABI version {version}, this package needs {ABI_VERSION}; build both from the same source")
        return library
    raise ImportError(f"{NAME} cannot be loaded. Looked for: {'; '.join(tried)}. Install the package from a built tree (tools/build, then "
                      "pip install ./client/python), or name the library in CIUIC_LIBRARY")


lib = _load()


def new_error():
    return Error(size=sizeof(Error))


def exception_of(error):
    """The exception that a filled ciuic_error stands for."""
    kind = errors.BY_CODE.get(error.code, errors.CiuicError)
    return kind(error.text.decode("utf-8", "replace"), error.kafka_code, bool(error.retriable))


def call(function, *arguments):
    """Calls a function whose last parameter is the error; raises what it reports."""
    error = new_error()
    if function(*arguments, byref(error)) < 0:
        raise exception_of(error)


def take_text(pointer):
    """A text that the library handed out, as str, freed."""
    if not pointer:
        raise errors.ForkedChild("this process is a forked child of the one that opened the client, or memory ran out")
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        lib.ciuic_text_free(pointer)


def _as_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_as_text(one) for one in value)
    return str(value)


def open_handle(function, config):
    """Opens a consumer or a producer. Values may be str, bool, numbers, or lists of them."""
    entries = (ConfigEntry * max(len(config), 1))()
    for entry, (key, value) in zip(entries, config.items()):
        entry.key = str(key).encode()
        entry.value = _as_text(value).encode()
    handle = c_void_p()
    call(function, entries, len(config), byref(handle))
    return handle.value


def milliseconds(seconds):
    if seconds < 0:
        raise errors.InvalidArgument(f"a time of {seconds} s: give 0 or more")
    return min(int(seconds * 1000 + 0.999), 2**53)

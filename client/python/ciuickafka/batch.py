"""Record batches where they lie."""

from ctypes import byref, c_ubyte, c_void_p, sizeof

from . import _records, errors
from ._library import BatchInfo, call, lib


class _Held:
    """Owns one ciuic_batch handle; whoever looks at the bytes holds this. `memory` is the program's that they lie in, or None."""

    __slots__ = ("handle", "memory", "__weakref__")

    def __init__(self, handle, memory):
        if not handle:
            raise MemoryError("ciuic_batch")
        self.handle = handle
        self.memory = memory

    def __del__(self):
        if lib is not None and getattr(self, "handle", None):
            lib.ciuic_batch_free(self.handle)


class Batch:
    """One record batch, checked. Iterating gives its records as copies; `view` gives its bytes without one.

    Attributes: topic, partition, base_offset, last_offset, first_wanted_offset, record_count, leader_epoch,
    max_timestamp (ms; -1: none), compression ("none", "gzip", …), in_place (the bytes lie in the broker's memory),
    device_pointer (where a CUDA device has them, after `Consumer.land_in`; 0: they lie on the host).
    It may be kept as long as you like and used by any thread: memory and lease are kept with it.
    """

    __slots__ = ("_held", "_address", "_length", "topic", "partition", "base_offset", "last_offset", "first_wanted_offset",
                 "max_timestamp", "leader_epoch", "record_count", "compression", "in_place", "device_pointer", "__weakref__")

    def __init__(self, handle, memory=None):
        """Takes the handle over."""
        self._held = _Held(handle, memory)
        info = BatchInfo(size=sizeof(BatchInfo))
        lib.ciuic_batch_info_get(handle, byref(info))
        self._address = info.bytes
        self._length = info.length
        self.topic = info.topic.decode()
        self.partition = info.partition
        self.base_offset = info.base_offset
        self.last_offset = info.last_offset
        self.first_wanted_offset = info.first_wanted_offset
        self.max_timestamp = info.max_timestamp
        self.leader_epoch = info.leader_epoch
        self.record_count = info.record_count
        self.compression = info.compression.decode()
        self.in_place = bool(info.in_place)
        self.device_pointer = info.device_bytes

    def __iter__(self):
        """Records from first_wanted_offset on, as copies. Errors: Corrupt, DataLoss (the lease ran out)."""
        return _records.records(self, True)

    def record_views(self):
        """The same without copying keys and values: read-only memoryviews that keep their bytes alive. Ask `in_force` after use.
        Where the batch is compressed they lie in memory that it was unpacked to."""
        return _records.records(self, False)

    def view(self):
        """The batch as on the wire (Kafka's magic 2, header included): a read-only memoryview that keeps the bytes alive.
        `numpy.frombuffer(batch.view(), dtype=numpy.uint8)` sees them without a copy. Ask `in_force` after use.
        Errors: InvalidState (they lie in a device: `torch.as_tensor(batch, device="cuda")` sees them there, `copy` brings them here)."""
        if self.device_pointer:
            raise errors.InvalidState("the batch lies in a device's memory: look at it there (__cuda_array_interface__), or copy() it")
        array = (c_ubyte * self._length).from_address(self._address)
        array.held = self._held
        return memoryview(array).cast("B").toreadonly()

    @property
    def __cuda_array_interface__(self):
        """The bytes where the device has them, for torch, CuPy and numba; all writes to them are done. Do not write: other
        batches lie beside this one. The tensor keeps the batch only if its maker keeps what it was made of, as torch does."""
        if not self.device_pointer:
            raise AttributeError("__cuda_array_interface__: the batch lies on the host")
        return {"shape": (self._length,), "typestr": "|u1", "data": (self.device_pointer, False), "strides": None, "version": 3}

    def __buffer__(self, flags):  # Python 3.12 and later: memoryview(batch)
        return self.view()

    def __len__(self):
        """Bytes of the batch as on the wire."""
        return self._length

    def __bool__(self):
        return True

    def in_force(self):
        """True while the bytes are guaranteed; False once a lease ran out: discard what was read from them."""
        return lib.ciuic_batch_in_force(self._held.handle) == 1

    def copy(self):
        """The same batch in memory of its own, for ever in force. Errors: DataLoss (the lease had run out)."""
        handle = c_void_p()
        call(lib.ciuic_batch_copy, self._held.handle, byref(handle))
        return Batch(handle.value)

    def __repr__(self):
        return (f"<Batch {self.topic}/{self.partition} offsets {self.base_offset} … {self.last_offset}, {self._length} bytes, "
                f"{self.compression}{', in place' if self.in_place else ''}>")

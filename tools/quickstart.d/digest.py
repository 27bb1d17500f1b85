"""One digest for every reader: per partition a SHA-256 over what it read, in order."""

import hashlib
import struct


class Partition:
    def __init__(self):
        self.sha, self.next, self.records, self.bytes = hashlib.sha256(), 0, 0, 0


class StreamDigest:
    """What one reader read: offset, key and value of each record. Offsets of a partition must rise from 0 without a gap."""

    def __init__(self):
        self.partitions = {}

    def add(self, partition, offset, key, value):
        key = key or b""
        value = value or b""
        state = self.at(partition, offset)
        state.next = offset + 1
        state.sha.update(struct.pack(">qii", offset, len(key), len(value)))
        state.sha.update(key)
        state.sha.update(value)
        state.records += 1
        state.bytes += len(key) + len(value)

    def at(self, partition, offset):
        state = self.partitions.setdefault(partition, Partition())
        if offset != state.next:
            raise SystemExit(f"partition {partition}: offset {offset} came where {state.next} was due")
        return state

    def next_offset(self, partition):
        return self.partitions[partition].next if partition in self.partitions else 0

    def forget(self, partition):
        self.partitions.pop(partition, None)

    records = property(lambda self: sum(state.records for state in self.partitions.values()))
    bytes = property(lambda self: sum(state.bytes for state in self.partitions.values()))

    def parts(self):
        return {str(partition): state.sha.hexdigest() for partition, state in self.partitions.items()}


class BatchDigest(StreamDigest):
    """The same over batches that nobody unpacked: their headers alone, as each holds the CRC32C of the rest, which was checked."""

    HEADER_BYTES = 61

    def add(self, batch):
        state = self.at(batch.partition, batch.base_offset)
        state.next = batch.last_offset + 1
        state.sha.update(batch.view()[:self.HEADER_BYTES])
        state.records += batch.record_count
        state.bytes += len(batch)


def combined(parts):
    """One line for a whole topic, from the partitions' digests, whoever read which."""
    whole = hashlib.sha256()
    for partition in sorted(parts, key=int):
        whole.update(f"{partition}={parts[partition]}\n".encode())
    return whole.hexdigest()

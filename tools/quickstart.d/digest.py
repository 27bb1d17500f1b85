"""One digest for every reader: per partition a SHA-256 over offset, key and value of each record in order."""

import hashlib
import struct


class StreamDigest:
    """What one reader read. Offsets of a partition must rise from 0 without a gap."""

    def __init__(self):
        self.partitions = {}
        self.records = 0
        self.bytes = 0

    def add(self, partition, offset, key, value):
        state = self.partitions.get(partition)
        if state is None:
            state = self.partitions[partition] = [hashlib.sha256(), 0]
        if offset != state[1]:
            raise SystemExit(f"partition {partition}: offset {offset} came where {state[1]} was due")
        state[1] = offset + 1
        key = key or b""
        value = value or b""
        state[0].update(struct.pack(">qii", offset, len(key), len(value)))
        state[0].update(key)
        state[0].update(value)
        self.records += 1
        self.bytes += len(key) + len(value)

    def parts(self):
        return {str(partition): state[0].hexdigest() for partition, state in self.partitions.items()}


def combined(parts):
    """One line for a whole topic, from the partitions' digests, whoever read which."""
    whole = hashlib.sha256()
    for partition in sorted(parts, key=int):
        whole.update(f"{partition}={parts[partition]}\n".encode())
    return whole.hexdigest()

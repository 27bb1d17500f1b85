"""The readers, each run as a process of its own: reads a topic to its end and prints a JSON line of what it read.

    readers.py kafka-python ADDRESS TOPIC GROUP ENDS        a stock consumer of a group; ENDS is {"partition": end offset}
    readers.py ciuic ADDRESS TOPIC TRANSPORT ENDS           ours; TRANSPORT is tcp or rdma (one-sided, best provider)
    readers.py ciuic-batches ADDRESS TOPIC TRANSPORT ENDS   the same, leaving the batches packed
"""

import json
import sys
import time

from digest import StreamDigest


def read_stock(address, topic, group, ends):
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest",
                             fetch_max_bytes=16 << 20, max_partition_fetch_bytes=4 << 20)
    while not consumer.assignment():
        consumer.poll(timeout_ms=100, max_records=1)
        consumer.assignment() and consumer.seek_to_beginning()
    mine = {part.partition for part in consumer.assignment()}
    read = StreamDigest()
    started = time.monotonic()
    left = {partition for partition in mine if ends[partition] > 0}
    while left:
        for part, messages in consumer.poll(timeout_ms=1000, max_records=10000).items():
            for message in messages:
                read.add(part.partition, message.offset, message.key, message.value)
            if messages and messages[-1].offset + 1 >= ends[part.partition]:
                left.discard(part.partition)
    seconds = time.monotonic() - started
    consumer.close()
    return read, seconds, "tcp"


class BatchCount:
    """What came in batches that nobody unpacked: the records they say they have, the bytes they are."""

    def __init__(self):
        self.records = self.bytes = 0

    def add(self, batch):
        self.records += batch.record_count
        self.bytes += len(batch)

    def parts(self):
        return {}


def read_ours(address, topic, transport, ends, unpack):
    import ciuickafka as ck

    consumer = ck.Consumer({"bootstrap.servers": address, "transport": transport})
    consumer.assign([(topic, partition, 0) for partition in sorted(ends)])
    read = StreamDigest() if unpack else BatchCount()
    started = time.monotonic()
    left = {partition for partition, end in ends.items() if end > 0}
    while left:
        for batch in consumer.poll(1.0):
            if unpack:
                for record in batch:
                    read.add(batch.partition, record.offset, record.key, record.value)
            else:
                read.add(batch)
            if batch.last_offset + 1 >= ends[batch.partition]:
                left.discard(batch.partition)
    seconds = time.monotonic() - started
    path = consumer.path(topic, min(ends))
    consumer.close()
    return read, seconds, path.provider or "tcp"


def main():
    kind, address, topic, argument, ends = sys.argv[1:]
    ends = {int(partition): end for partition, end in json.loads(ends).items()}
    if kind == "kafka-python":
        read, seconds, path = read_stock(address, topic, argument, ends)
    else:
        read, seconds, path = read_ours(address, topic, argument, ends, kind == "ciuic")
    print(json.dumps({"records": read.records, "bytes": read.bytes, "parts": read.parts(), "seconds": seconds, "path": path}))


if __name__ == "__main__":
    main()

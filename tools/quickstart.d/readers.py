"""The readers, each run as a process of its own: reads a topic to its end and prints a JSON line of what it read.

    readers.py kafka-python ADDRESS TOPIC GROUP ENDS        a stock consumer of a group (stock.py); ENDS is {"partition": end offset}
    readers.py ciuic ADDRESS TOPIC TRANSPORT ENDS           ours; TRANSPORT is tcp or rdma (one-sided, best provider)
    readers.py ciuic-batches ADDRESS TOPIC TRANSPORT ENDS   the same, leaving the batches packed
"""

import json
import sys
import time

from digest import BatchDigest, StreamDigest


def read_ours(address, topic, transport, ends, unpack):
    import ciuickafka as ck

    consumer = ck.Consumer({"bootstrap.servers": address, "transport": transport})
    consumer.assign([(topic, partition, 0) for partition in sorted(ends)])
    read = StreamDigest() if unpack else BatchDigest()
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
        import stock

        (read, seconds), path = stock.read(address, topic, argument, ends), "tcp"
    else:
        read, seconds, path = read_ours(address, topic, argument, ends, kind == "ciuic")
    print(json.dumps({"records": read.records, "bytes": read.bytes, "parts": read.parts(), "seconds": seconds, "path": path}))


if __name__ == "__main__":
    main()

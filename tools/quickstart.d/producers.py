"""A stock producer over its share of the corpus, as the announcement shows it: KafkaProducer(compression_type='snappy').

    producers.py ADDRESS TOPIC CORPUS LIST      LIST: a file of paths relative to CORPUS, one a line
"""

import json
import pathlib
import sys
import time

PIECE = 512 * 1024  # a file larger than this becomes several records: a request stays well under Kafka's 1 MiB


def main():
    from kafka import KafkaProducer

    address, topic, corpus, listing = sys.argv[1:]
    producer = KafkaProducer(bootstrap_servers=address, compression_type="snappy", batch_size=256 * 1024, linger_ms=20,
                             buffer_memory=128 << 20)
    records = size = 0
    started = time.monotonic()
    failures = []
    for name in pathlib.Path(listing).read_text().splitlines():
        key = str(pathlib.PurePath(name).parent).encode()
        content = pathlib.Path(corpus, name).read_bytes()
        for at in range(0, max(len(content), 1), PIECE):
            value = content[at:at + PIECE]
            producer.send(topic, key=key, value=value).add_errback(failures.append)
            records += 1
            size += len(key) + len(value)
    producer.flush()
    seconds = time.monotonic() - started
    producer.close()
    if failures:
        sys.exit(f"{len(failures)} records were not acknowledged, the first: {failures[0]}")
    print(json.dumps({"records": records, "bytes": size, "seconds": seconds}))


if __name__ == "__main__":
    main()

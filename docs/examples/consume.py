"""Reads partition 0 of a topic from its beginning to its end: consume.py HOST:PORT TOPIC"""
import sys

import ciuickafka as ck

with ck.Consumer({"bootstrap.servers": sys.argv[1], "transport": "auto"}) as consumer:
    consumer.assign([(sys.argv[2], 0, ck.BEGINNING)])
    while batches := consumer.poll(1.0):
        for batch in batches:
            print(batch.base_offset, batch.record_count)

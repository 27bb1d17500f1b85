#!/usr/bin/env python3
"""ciuickafka.Producer against a live broker."""

import os
import threading

import counted
from live import Live, ck


class Sending(Live):
    def test_a_delivery_tells_where_the_record_went(self):
        written = self.fill(100)
        self.assertEqual([one.offset for one in written], list(range(100)))
        self.assertEqual({(one.topic, one.partition) for one in written}, {(self.topic, 0)})
        self.assertEqual(written[7].timestamp, 1_700_000_000_007)

    def test_bytes_like_values_are_taken_and_text_is_refused(self):
        with self.producer() as producer:
            for value in (b"bytes", bytearray(b"array"), memoryview(b"-view-")[1:5], None):
                producer.send(self.topic, value, partition=0)
            with self.raises(TypeError, "encode"):
                producer.send(self.topic, "text")
            with self.raises(TypeError, "key"):
                producer.send(self.topic, b"", key="text")
        found = [record.value for record in self.records(self.from_the_beginning(), 4)]
        self.assertEqual(found, [b"bytes", b"array", b"view", None])

    def test_headers_come_as_a_dict_or_pairs(self):
        with self.producer() as producer:
            producer.send(self.topic, b"", partition=0, headers={"a": b"1", "b": None})
            producer.send(self.topic, b"", partition=0, headers=[("a", b"1"), ("a", b"2")])
        found = [record.headers for record in self.records(self.from_the_beginning(), 2)]
        self.assertEqual(found, [(("a", b"1"), ("b", None)), (("a", b"1"), ("a", b"2"))])

    def test_callbacks_run_once_each_also_when_added_late(self):
        told = []
        with self.producer() as producer:
            deliveries = [producer.send(self.topic, b"%d" % number, partition=0) for number in range(50)]
            for delivery in deliveries:
                delivery.add_done_callback(lambda one: told.append(one.result(0).offset))
            producer.flush()
        deliveries[0].add_done_callback(lambda one: told.append(-1))
        self.assertEqual(sorted(told), [-1, *range(50)])
        self.assertTrue(all(one.done() for one in deliveries))

    def test_many_threads_may_send(self):
        with self.producer() as producer:
            threads = [threading.Thread(target=lambda: [producer.send(self.topic, b"x", partition=0) for _ in range(200)]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual([record.offset for record in self.records(self.from_the_beginning(), 800)], list(range(800)))

    def test_metrics_and_partitions(self):
        with self.producer() as producer:
            producer.send(self.topic, b"x").result(20)
            self.assertEqual(producer.partition_count(self.topic), 1)
            self.assertTrue(all(metric.name.startswith("ciuic_client_") for metric in producer.metrics()))


class Errors(Live):
    def test_wrong_settings_name_key_value_and_what_is_allowed(self):
        with self.raises(ck.InvalidConfig, "compression.type", "rar", "zstd"):
            self.producer(compression_type="rar")

    def test_a_record_that_is_too_large_is_refused_with_kafkas_code(self):
        with self.producer(max_request_size=10_000) as producer:
            with self.assertRaises(ck.BrokerError) as caught:
                producer.send(self.topic, os.urandom(20_000)).result(20)
        self.assertEqual(caught.exception.kafka_code, 10)

    def test_a_partition_that_is_not_there_is_refused(self):
        with self.producer() as producer:
            producer.send(self.topic, b"").result(20)
            with self.assertRaises(ck.InvalidArgument):
                producer.send(self.topic, b"", partition=77)

    def test_no_broker_is_told_by_the_delivery_or_the_call(self):
        with self.raises(ck.CiuicError):
            producer = ck.Producer({"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 500, "delivery.timeout.ms": 1000})
            try:
                producer.send("t", b"").result(20)
            finally:
                producer.close(0)

    def test_waiting_has_an_end(self):
        producer = self.producer(linger_ms=60_000)
        delivery = producer.send(self.topic, b"")
        with self.assertRaises(ck.TimedOut):
            delivery.result(0.1)
        producer.close()
        self.assertEqual(delivery.result(0).offset, 0)

    def test_a_closed_producer_says_so(self):
        producer = self.producer()
        producer.close()
        producer.close()
        with self.raises(ck.InvalidState, "closed"):
            producer.send(self.topic, b"")

    def test_a_forked_child_is_refused(self):
        with self.producer() as producer:
            producer.send(self.topic, b"").result(20)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    producer.send(self.topic, b"")
                except ck.ForkedChild:
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(producer.send(self.topic, b"").result(20).offset, 1)


if __name__ == "__main__":
    counted.main()

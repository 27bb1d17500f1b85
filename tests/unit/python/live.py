"""What the tests of the Python package share: the package, a live broker, topics with known records."""

import contextlib
import itertools
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "clients" / "support"), str(ROOT / "client" / "python")]
import brokers  # noqa: E402
import ciuickafka as ck  # noqa: E402

_names = itertools.count()


class Live(unittest.TestCase):
    """A broker for the class, a topic name for each test."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        ck.set_log_level("error")
        cls._running = brokers.running(settings=cls.settings)
        cls.broker = cls._running.__enter__()
        cls.address = cls.broker.address

    @classmethod
    def tearDownClass(cls):
        cls._running.__exit__(None, None, None)

    def setUp(self):
        self.topic = f"{type(self).__name__}-{next(_names)}"

    def producer(self, **config):
        return ck.Producer({"bootstrap.servers": self.address, **{key.replace("_", "."): value for key, value in config.items()}})

    def consumer(self, **config):
        consumer = ck.Consumer({"bootstrap.servers": self.address, **{key.replace("_", "."): value for key, value in config.items()}})
        self.addCleanup(consumer.close)
        return consumer

    def fill(self, count, value=b"value %d", **config):
        with self.producer(**config) as producer:
            sent = [producer.send(self.topic, value % number, key=b"key %d" % number, partition=0, timestamp=1_700_000_000_000 + number)
                    for number in range(count)]
        return [one.result(0) for one in sent]

    def from_the_beginning(self, **config):
        consumer = self.consumer(**config)
        consumer.assign([(self.topic, 0, ck.BEGINNING)])
        return consumer

    def batches(self, consumer, records, timeout=20.0):
        found = []
        while sum(batch.record_count for batch in found) < records:
            got = consumer.poll(timeout)
            self.assertTrue(got, f"{records} records were due, {sum(batch.record_count for batch in found)} came")
            found += got
        return found

    def records(self, consumer, count):
        return [record for batch in self.batches(consumer, count) for record in batch]

    @contextlib.contextmanager
    def raises(self, kind, *texts):
        with self.assertRaises(kind) as caught:
            yield caught
        for text in texts:
            self.assertIn(text, str(caught.exception))

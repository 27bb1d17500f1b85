#!/usr/bin/env python3
"""tools/quickstart in a small form: it ends well with one digest for all readers, and ends ill where a reader differs; its
stock readers share a topic rightly when one joins late and one dies."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ROOT / "tools" / "quickstart.d"
sys.path[:0] = [str(ROOT / "tests" / "clients" / "support"), str(ROOT / "tests" / "unit" / "python"), str(PARTS)]
import brokers  # noqa: E402
import counted  # noqa: E402
from digest import StreamDigest, combined  # noqa: E402

PIECE, PARTITIONS, RECORDS = 512 * 1024, 4, 2000
# The reader as it is, but slow, so that it can be joined and killed in the middle, and quick to notice.
SLOW = """
import time, kafka
kafka.KafkaConsumer.DEFAULT_CONFIG.update(session_timeout_ms=3000, heartbeat_interval_ms=300)
poll = kafka.KafkaConsumer.poll
def slowly(self, timeout_ms=0, max_records=None):
    time.sleep(0.05)
    return poll(self, timeout_ms=timeout_ms, max_records=10)
kafka.KafkaConsumer.poll = slowly
import readers
readers.main()
"""


def corpus(folder):
    """Sources in several directories: most small, one empty, one of several pieces; (records, bytes) that they make."""
    records = size = 0
    for number in range(300):
        name = pathlib.PurePath(f"d{number % 7}", f"f{number}.{'ch'[number % 2]}")
        content = b"" if number == 5 else "".join(f"int f{number}_{line}(void);\n" for line in range(40 if number else 60000)).encode()
        path = pathlib.Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        pieces = max(-(-len(content) // PIECE), 1)
        records, size = records + pieces, size + len(content) + pieces * len(str(name.parent))
    pathlib.Path(folder, "notes.txt").write_text("no source")
    return records, size


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ciuic-quickstart-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def test_ends_with_one_digest_for_all_readers(self):
        records, size = corpus(self.folder)
        ran = subprocess.run([ROOT / "tools" / "quickstart", "--corpus", self.folder, "--bytes", "0"], capture_output=True, text=True, timeout=150, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        agreed = re.fullmatch(r"all digests agree: ([0-9a-f]{64}) \(records\), ([0-9a-f]{16}) \(batches\)", ran.stdout.splitlines()[-1])
        self.assertTrue(agreed, ran.stdout)
        rows = {cells[0]: cells for cells in (re.split(r"  +", line.strip()) for line in ran.stdout.splitlines()) if len(cells) == 8}
        for what, path in {"records: 2 × kafka-python, gpu-cluster-1": "tcp", "records: ciuickafka over TCP": "tcp", "records: ciuickafka one-sided": "shm"}.items():
            self.assertEqual(rows[what][1:5], [path, f"{records:,}", f"{size:,}", agreed.group(1)[:16]], what)
        tcp, one_sided = rows["batches: ciuickafka over TCP"], rows["batches: ciuickafka one-sided"]
        self.assertEqual((tcp[1], tcp[2], tcp[4]), ("tcp", f"{records:,}", agreed.group(2)))
        self.assertEqual((one_sided[1], one_sided[2:5]), ("shm", tcp[2:5]))

    def test_a_reader_that_differs_is_told(self):
        small = pathlib.Path(self.folder, "small")
        small.mkdir()
        corpus(small)
        parts = pathlib.Path(self.folder, "parts")
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "client" / "python"))
        for kind, right, wrong in (("ciuic", '"parts": read.parts()', '"parts": {**read.parts(), "0": "another"}'),
                                   ("ciuic-batches", '"parts": read.parts()', '"parts": {**read.parts(), "0": "another"}'),
                                   ("ciuic", '"records": read.records', '"records": read.records - 1')):
            shutil.copytree(PARTS, parts)
            text = (parts / "readers.py").read_text()
            self.assertEqual(text.count(right), 1)
            key, value = right.split(": ")
            (parts / "readers.py").write_text(text.replace(right, f"{key}: {wrong.split(': ', 1)[1]} if (kind, argument) == ('{kind}', 'rdma') else {value}"))
            ran = subprocess.run([sys.executable, parts / "main.py", "--broker", os.environ["CIUIC_BROKER"], "--corpus", small, "--bytes", "200000"],
                                 capture_output=True, text=True, timeout=100, env=environment, check=False)
            self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
            self.assertIn("DISAGREE", ran.stdout.splitlines()[-1], (kind, wrong))
            shutil.rmtree(parts)


class StockReaders(unittest.TestCase):
    def test_share_a_topic_when_one_joins_late_and_one_dies(self):
        from kafka import KafkaProducer

        with brokers.running("ours", program=os.environ["CIUIC_BROKER"], settings={"num.partitions": PARTITIONS, "group.min.session.timeout.ms": 1000}) as broker:
            producer = KafkaProducer(bootstrap_servers=broker.address)
            expected = StreamDigest()
            for number in range(RECORDS):
                value = hashlib.sha256(b"%d" % number).digest()
                producer.send("t", partition=number % PARTITIONS, value=value)
                expected.add(number % PARTITIONS, number // PARTITIONS, None, value)
            producer.flush()
            producer.close()
            ends = json.dumps({partition: RECORDS // PARTITIONS for partition in range(PARTITIONS)})
            running = []

            def reader():
                running.append(subprocess.Popen([sys.executable, "-c", SLOW, "kafka-python", broker.address, "t", "group", ends], cwd=PARTS,
                                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
                return running[-1]

            try:
                reader()
                time.sleep(2)
                reader()
                time.sleep(2)
                mortal = reader()
                time.sleep(2)
                mortal.terminate()  # says no good-bye: its partitions move when its session is over
                mortal.communicate()
                done = [process.communicate(timeout=90) for process in running[:2]]
            finally:
                for process in running:
                    process.kill()
        for process, (_, errors) in zip(running, done):
            self.assertEqual(process.returncode, 0, errors)
        results = [json.loads(out.splitlines()[-1]) for out, _ in done]
        self.assertTrue(all(result["parts"] for result in results), results)
        self.assertEqual(sum(len(result["parts"]) for result in results), PARTITIONS, "a partition was digested twice")
        self.assertEqual(sum(result["records"] for result in results), RECORDS)
        self.assertEqual(combined({**results[0]["parts"], **results[1]["parts"]}), combined(expected.parts()))


if __name__ == "__main__":
    counted.main()

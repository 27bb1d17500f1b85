"""Creates and empties topics over a bare socket: without a client's own start, and alike on both brokers."""

import struct
import sys
import time

import paths

sys.path.insert(0, str(paths.ROOT / "bench" / "kafka_vs_apache.d"))
import brokers  # noqa: E402

PAUSE_S = 0.05
SECONDS = 120
NOT_YET = (3, 5, 6)  # unknown topic, no leader, not the leader: the broker is about to know


class Admin(brokers.Wire):
    def __init__(self, address):
        super().__init__(address)
        self.socket.settimeout(SECONDS)  # thousands of partitions take a while

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _text(self, text):
        return struct.pack(">h", len(text)) + text.encode()

    def create(self, topic, partitions, settings=()):
        """CreateTopics v2; returns when every partition has a leader."""
        body = struct.pack(">i", 1) + self._text(topic) + struct.pack(">ihi", partitions, 1, 0)
        body += struct.pack(">i", len(settings)) + b"".join(self._text(key) + self._text(value) for key, value in settings)
        answer = self.ask(19, 2, body + struct.pack(">i?", 30000, False))
        size = struct.unpack_from(">h", answer, 8)[0]
        self._must(f"creating {topic}", struct.unpack_from(">h", answer, 10 + size)[0])
        # ListOffsets answers only from a leader that serves.
        self._until_ready(lambda: self._ends(topic, range(partitions)), f"leaders of {topic}")

    def _ends(self, topic, partitions):
        """ListOffsets v1: (error code, {partition: end})."""
        body = struct.pack(">ii", -1, 1) + self._text(topic) + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">iq", partition, -1) for partition in partitions)
        answer = self.ask(2, 1, body)
        at = 4 + 2 + len(topic.encode()) + 4
        out, worst = {}, 0
        for _ in partitions:
            partition, error, _time, offset = struct.unpack_from(">ihqq", answer, at)
            at += 22
            out[partition], worst = offset, worst or error
        return worst, out

    def ends(self, topic, partitions):
        return self._until_ready(lambda: self._ends(topic, range(partitions)), f"ends of {topic}")

    def forget(self, topic, partitions):
        """DeleteRecords v1: the log starts at its end, as retention leaves a broker that has run for a while."""
        body = struct.pack(">i", 1) + self._text(topic) + struct.pack(">i", partitions)
        body += b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions)) + struct.pack(">i", 30000)

        def forgotten():
            answer = self.ask(21, 1, body)
            at = 8 + 2 + len(topic.encode()) + 4
            return max(struct.unpack_from(">iqh", answer, at + 14 * number)[2] for number in range(partitions)), None

        self._until_ready(forgotten, f"deleting the records of {topic}")

    def delete(self, topic):
        """DeleteTopics v1."""
        answer = self.ask(20, 1, struct.pack(">i", 1) + self._text(topic) + struct.pack(">i", 30000))
        size = struct.unpack_from(">h", answer, 8)[0]
        self._must(f"deleting {topic}", struct.unpack_from(">h", answer, 10 + size)[0])

    @staticmethod
    def _must(what, error):
        if error:
            raise RuntimeError(f"{what}: the broker answered error code {error}")

    def _until_ready(self, ask, what):
        end = time.monotonic() + SECONDS
        while True:
            error, answer = ask()
            if error not in NOT_YET or time.monotonic() > end:
                self._must(what, error)
                return answer
            time.sleep(PAUSE_S)


def serves(address):
    """Whether a Metadata request is answered with a broker in it: what both brokers' starts are timed to."""
    try:
        with Admin(address) as admin:
            return struct.unpack_from(">i", admin.ask(3, 1, struct.pack(">i", 0)))[0] > 0
    except (OSError, struct.error):
        return False

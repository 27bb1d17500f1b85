"""A stock kafka-python consumer of a group, whose members may come and go while it reads.

A partition that moves is read anew, from its beginning, by the member that gets it, and forgotten by the one that had it:
in the end each partition is in one member's digest, whole. How far it is read is committed, so that a member that is done
knows when all are, and leaves only then.
"""

import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition

from digest import StreamDigest


class Share(ConsumerRebalanceListener):
    def __init__(self, consumer, topic, ends):
        self.consumer, self.topic, self.ends = consumer, topic, ends
        self.mine, self.read, self.assigned, self.started = set(), StreamDigest(), None, None

    def unread(self):
        return [partition for partition in self.mine if self.read.next_offset(partition) < self.ends[partition]]

    def commit(self):
        offsets = {TopicPartition(self.topic, partition): OffsetAndMetadata(self.read.next_offset(partition), "", -1) for partition in self.mine}
        if offsets:
            self.consumer.commit(offsets)

    def group_is_done(self):
        return all((self.consumer.committed(TopicPartition(self.topic, partition)) or 0) >= end for partition, end in self.ends.items())

    def on_partitions_revoked(self, revoked):
        pass  # most come back: what is gone is known once the new ones are

    def on_partitions_assigned(self, assigned):
        self.assigned = {part.partition for part in assigned}

    def take(self):
        """Begins with what has been assigned; not inside the listener, where kafka-python lets nobody ask the broker."""
        now, self.assigned = self.assigned, None
        self.started = self.started or time.monotonic()
        if self.group_is_done():
            return  # the others leave, having read theirs
        for gone in self.mine - now:
            self.read.forget(gone)
        self.mine = now
        for partition in now:
            self.consumer.seek(TopicPartition(self.topic, partition), self.read.next_offset(partition))
        self.commit()


def read(address, topic, group, ends):
    """(digest, seconds until its own share was read)"""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                             fetch_max_bytes=16 << 20, max_partition_fetch_bytes=4 << 20)
    share = Share(consumer, topic, ends)
    consumer.subscribe([topic], listener=share)
    finished = None
    while share.unread() or not share.group_is_done():
        waiting = not share.unread()
        found = consumer.poll(timeout_ms=100 if waiting else 1000, max_records=10000)
        if share.assigned is not None:
            share.take()
            continue  # what came with a new assignment comes again, from where it was sought
        for part, messages in found.items():
            for message in messages:
                share.read.add(part.partition, message.offset, message.key, message.value)
        if not waiting and not share.unread():
            share.commit()
            finished = time.monotonic()
    consumer.close()
    return share.read, finished - share.started if finished else 0.0

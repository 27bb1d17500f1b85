#!/usr/bin/env python3
"""ciuickafka.Consumer and Batch against a live broker, over TCP and one-sidedly."""

import array
import ctypes
import gc
import mmap
import os
import signal
import struct
import threading
import time

import counted
from live import Live, ck

PATHS = {"tcp": ("tcp", ""), "rdma": ("one-sided", "shm")}


class GpuArray:
    """A CUDA array as torch, CuPy and numba show theirs, in memory of the driver's."""

    def __init__(self, size):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
        for name, *arguments in (("cuInit", 0), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0), ("cuCtxPushCurrent_v2", None),
                                 ("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size)), ("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))):
            if name == "cuCtxPushCurrent_v2":
                arguments = [context]
            if getattr(self.driver, name)(*arguments) != 0:
                raise OSError(name)
        self.first, self.size = pointer.value, size
        self.__cuda_array_interface__ = {"shape": (size // 4,), "typestr": "<f4", "data": (pointer.value, False), "strides": None, "version": 3}


class Reading(Live):
    def test_records_are_those_sent_whatever_the_codec_and_the_path(self):
        sent = []
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with self.producer(compression_type=codec) as producer:
                for number in range(300):
                    key = None if number % 7 == 0 else b"" if number % 7 == 1 else b"k%d" % number
                    value = None if number % 5 == 0 else b"" if number % 5 == 1 else os.urandom(number * 20)
                    headers = (("codec", codec.encode()), ("null", None), ("empty", b"")) if number % 3 == 0 else ()
                    producer.send(self.topic, value, key=key, partition=0, timestamp=1_700_000_000_000 + number, headers=headers)
                    sent.append((len(sent), 1_700_000_000_000 + number, key, value, headers, self.topic, 0))
        for transport, (path, provider) in PATHS.items():
            with self.subTest(transport):
                consumer = self.from_the_beginning(transport=transport)
                batches = self.batches(consumer, len(sent))
                self.assertEqual({batch.compression for batch in batches}, {"none", "gzip", "snappy", "lz4", "zstd"})
                self.assertEqual({batch.in_place for batch in batches}, {transport == "rdma"})
                self.assertEqual([tuple(record) for batch in batches for record in batch], sent)
                told = consumer.path(self.topic, 0)
                self.assertEqual((told.path, told.provider), (path, provider))
                self.assertTrue(transport == "rdma" or told.reason)

    def test_a_batch_that_unpacks_to_more_than_the_setting_is_an_error_that_names_it(self):
        with self.producer(compression_type="zstd", max_request_size=8 << 20) as producer:
            producer.send(self.topic, bytes(6 << 20), partition=0)
        for most, enough in ((7 << 20, True), (5 << 20, False)):
            batch = self.batches(self.from_the_beginning(**{"max.decompressed.batch.bytes": most}), 1)[0]
            if enough:
                self.assertEqual(len(list(batch)[0].value), 6 << 20)
                continue
            with self.assertRaises(ck.Corrupt) as raised:
                list(batch)
            self.assertEqual(raised.exception.kafka_code, 10)
            for part in (f"{self.topic}-0 at offset 0", str(most), "max.decompressed.batch.bytes"):
                self.assertIn(part, str(raised.exception))

    def test_both_paths_give_the_same_batches_byte_by_byte(self):
        self.fill(5000)
        tcp, rdma = (b"".join(bytes(batch.view()) for batch in self.batches(self.from_the_beginning(transport=transport), 5000))
                     for transport in PATHS)
        self.assertEqual(tcp, rdma)

    def test_batches_land_in_the_programs_memory(self):
        self.fill(2000)
        for transport in PATHS:
            for memory in (bytearray(1 << 20), array.array("d", bytes(1 << 20)), mmap.mmap(-1, 1 << 20)):
                with self.subTest(transport, memory=type(memory).__name__):
                    consumer = ck.Consumer({"bootstrap.servers": self.address, "transport": transport})
                    consumer.land_in(memory)
                    consumer.assign([(self.topic, 0, ck.BEGINNING)])
                    batches = self.batches(consumer, 2000)
                    self.assertTrue(consumer.path(self.topic, 0).landing.startswith("copied: "))
                    self.assertFalse(any(batch.in_place or batch.device_pointer for batch in batches))
                    views = [bytes(batch.view()) for batch in batches]
                    self.assertTrue(all(view in bytes(memoryview(memory).cast("B")) for view in views))
                    self.assertFalse(hasattr(batches[0], "__cuda_array_interface__"))
                    self.assertEqual([record.offset for batch in batches for record in batch], list(range(2000)))
                    # The memory is kept by batches alone, too.
                    consumer.close()
                    del memory, consumer
                    gc.collect()
                    self.assertEqual([bytes(batch.view()) for batch in batches], views)

    def test_batches_land_in_a_gpus_memory(self):
        try:
            memory = GpuArray(1 << 20)
        except OSError as problem:
            self.skipTest(f"neither a GPU's driver nor the stand-in for one: {problem}")
        self.fill(2000)
        for transport in PATHS:
            with self.subTest(transport):
                consumer = self.consumer(transport=transport)
                consumer.land_in(memory)
                consumer.assign([(self.topic, 0, ck.BEGINNING)])
                batches = self.batches(consumer, 2000)
                self.assertRegex(consumer.path(self.topic, 0).landing, r"^copied: .*cuda:0")
                for batch in batches:
                    self.assertTrue(memory.first <= batch.device_pointer <= memory.first + memory.size - len(batch))
                    shown = batch.__cuda_array_interface__
                    self.assertEqual((shown["shape"], shown["typestr"], shown["data"]), ((len(batch),), "|u1", (batch.device_pointer, False)))
                    for look in (batch.view, lambda at=batch: list(at)):
                        with self.assertRaises(ck.InvalidState) as raised:
                            look()
                        self.assertIn("copy", str(raised.exception))
                self.assertEqual([record.value for batch in batches for record in batch.copy()], [b"value %d" % number for number in range(2000)])

    def test_a_full_landing_buffer_is_an_error_until_batches_are_let_go(self):
        self.fill(3000, batch_size=1000)
        consumer = self.consumer()
        consumer.land_in(bytearray(16384))
        consumer.assign([(self.topic, 0, ck.BEGINNING)])
        kept, seen, full = [], 0, 0
        while seen < 3000:
            try:
                got = consumer.poll(0.3)
            except ck.QueueFull as problem:
                self.assertTrue(problem.retriable)
                self.assertTrue(kept)
                kept.clear()
                full += 1
                continue
            kept += got
            seen += sum(batch.record_count for batch in got)
        self.assertGreater(full, 0)
        self.assertEqual(seen, 3000)

    def test_memory_that_nothing_can_land_in_is_refused_in_words(self):
        consumer = self.consumer()
        for bad, word in ((bytes(8192), "writable"), (bytearray(100), "4096"), ("text", "str"), (memoryview(bytearray(20000))[::2], "contiguous")):
            with self.assertRaises(ck.InvalidArgument) as raised:
                consumer.land_in(bad)
            self.assertIn(word, str(raised.exception))
        consumer.land_in(bytearray(8192))
        with self.assertRaises(ck.InvalidState):
            consumer.land_in(bytearray(8192))

    def test_a_position_inside_a_batch_gives_only_what_was_asked_for(self):
        self.fill(100, linger_ms=1000)
        consumer = self.consumer()
        consumer.assign([(self.topic, 0, 57)])
        batch = consumer.poll(10)[0]
        self.assertLess(batch.base_offset, 57)
        self.assertEqual(batch.first_wanted_offset, 57)
        self.assertEqual(next(iter(batch)).offset, 57)

    def test_batches_larger_than_a_chunk_of_records_come_whole(self):
        self.fill(5000, value=b"%d", batch_size=1 << 20, linger_ms=2000)
        batches = self.batches(self.from_the_beginning(), 5000)
        self.assertGreater(max(batch.record_count for batch in batches), 1024)
        self.assertEqual([record.value for batch in batches for record in batch], [b"%d" % number for number in range(5000)])

    def test_iterations_may_be_left_and_interleaved(self):
        self.fill(3000)
        batches = self.batches(self.from_the_beginning(), 3000)
        for batch in batches[:3]:
            self.assertEqual(next(iter(batch)).offset, batch.base_offset)
        pairs = list(zip(batches[0], batches[0]))
        self.assertTrue(pairs and all(a == b for a, b in pairs))

    def test_the_consumer_itself_iterates_over_records(self):
        self.fill(500)
        found = []
        for record in self.from_the_beginning():
            found.append(record.offset)
            if len(found) == 500:
                break
        self.assertEqual(found, list(range(500)))

    def test_large_values_come_whole(self):
        values = [bytes([65 + i]) * (200_000 + i) for i in range(4)]
        with self.producer() as producer:
            for value in values:
                producer.send(self.topic, value, partition=0)
        for transport in PATHS:
            self.assertEqual([record.value for record in self.records(self.from_the_beginning(transport=transport), 4)], values)


class Views(Live):
    def test_a_view_is_the_batch_as_on_the_wire_and_cannot_be_written(self):
        self.fill(10)
        for transport in PATHS:
            batch = self.batches(self.from_the_beginning(transport=transport), 1)[0]
            view = batch.view()
            base, length = struct.unpack_from(">qi", view)
            self.assertEqual((base, length + 12, view[16]), (batch.base_offset, len(batch), 2))
            self.assertTrue(view.readonly)
            with self.assertRaises(TypeError):
                view[0] = 1

    def test_a_view_keeps_the_bytes_when_batch_and_consumer_are_gone(self):
        self.fill(2000)
        for transport in PATHS:
            consumer = self.from_the_beginning(transport=transport)
            batches = self.batches(consumer, 2000)
            copies = [bytes(batch.view()) for batch in batches]
            views = [batch.view() for batch in batches]
            del batches
            consumer.poll(0.05)
            consumer.close()
            del consumer
            gc.collect()
            self.assertEqual([bytes(view) for view in views], copies)

    def test_views_of_records_are_the_records_and_outlive_the_batch(self):
        for codec in ("none", "snappy"):
            topic, self.topic = self.topic, f"{self.topic}-{codec}"
            self.fill(2500, value=b"%d", compression_type=codec, linger_ms=1000)
            with self.producer() as producer:
                producer.send(self.topic, None, key=b"", partition=0)
            batches = self.batches(self.from_the_beginning(transport="rdma"), 2501)
            wanted = [(record.offset, record.key, record.value) for batch in batches for record in batch]
            views = [record for batch in batches for record in batch.record_views()]
            self.assertTrue(views[0].value.readonly)
            del batches
            gc.collect()
            for _ in range(3):  # readers that are used again must not be theirs
                list(self.batches(self.from_the_beginning(), 1)[0])
            found = [(one.offset, bytes(one.key), None if one.value is None else bytes(one.value)) for one in views]
            self.assertEqual(found, wanted)
            self.topic = topic

    def test_numpy_sees_the_bytes_without_a_copy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        self.fill(100)
        batch = self.batches(self.from_the_beginning(), 1)[0]
        array = numpy.frombuffer(batch.view(), dtype=numpy.uint8)
        self.assertEqual(array.ctypes.data, batch._address)
        self.assertFalse(array.flags.writeable)
        wanted = bytes(batch.view())
        del batch
        gc.collect()
        self.assertEqual(array.tobytes(), wanted)

    def test_a_copy_stands_alone(self):
        self.fill(100)
        consumer = self.from_the_beginning(transport="rdma")
        batch = self.batches(consumer, 1)[0]
        copy = batch.copy()
        self.assertTrue(batch.in_place and batch.in_force())
        self.assertFalse(copy.in_place)
        consumer.close()
        self.assertTrue(copy.in_force())
        self.assertEqual(bytes(copy.view()), bytes(batch.view()))
        self.assertEqual([record.offset for record in copy], [record.offset for record in batch])


class LeaseEnds(Live):
    settings = {"onesided.lease.ms": 500}

    def test_records_of_a_batch_whose_lease_ran_out_are_refused_not_wrong(self):
        self.fill(100)
        consumer = self.from_the_beginning(transport="rdma")
        batch = self.batches(consumer, 1)[0]
        time.sleep(1.5)
        self.assertTrue(batch.in_force(), "the consumer renews the leases of batches that are kept")
        consumer.close()
        end = time.monotonic() + 10
        while batch.in_force() and time.monotonic() < end:
            time.sleep(0.05)
        with self.assertRaises(ck.DataLoss):
            list(batch)
        with self.assertRaises(ck.DataLoss):
            batch.copy()


class Positions(Live):
    def test_seek_by_offset_end_beginning_and_time(self):
        self.fill(200)
        consumer = self.from_the_beginning()
        self.assertEqual(consumer.position(self.topic, 0), 0)
        consumer.seek(self.topic, 0, 150)
        self.assertEqual(self.records(consumer, 1)[0].offset, 150)
        consumer.seek(self.topic, 0, ck.END)
        self.assertEqual(consumer.position(self.topic, 0), 200)
        consumer.seek_to_time(self.topic, 0, 1_700_000_000_042)
        self.assertEqual(self.records(consumer, 1)[0].offset, 42)
        consumer.seek(self.topic, 0, ck.BEGINNING)
        self.assertEqual(self.records(consumer, 1)[0].offset, 0)

    def test_questions_are_answered(self):
        self.fill(200)
        consumer = self.from_the_beginning()
        at = ck.TopicPartition(self.topic, 0)
        self.assertEqual(consumer.beginning_offsets([at]), {at: 0})
        self.assertEqual(consumer.end_offsets([at]), {at: 200})
        self.assertEqual(consumer.offsets_for_times({at: 1_700_000_000_100}), {at: 100})
        self.assertEqual(consumer.offsets_for_times({at: 1_800_000_000_000}), {at: None})
        self.assertEqual(consumer.partition_count(self.topic), 1)
        self.assertIn(self.topic, [topic["topic"] for topic in consumer.topics()])
        self.batches(consumer, 200)
        self.assertEqual(consumer.assignment(), {at: 200})
        self.assertEqual(consumer.lag(*at), 0)
        self.assertTrue(all(metric.name.startswith("ciuic_client_") for metric in consumer.metrics()))

    def test_a_paused_partition_gives_nothing_until_resumed(self):
        self.fill(10)
        consumer = self.from_the_beginning()
        consumer.pause([(self.topic, 0)])
        self.assertEqual(consumer.poll(0.3), [])
        consumer.resume([(self.topic, 0)])
        self.assertEqual(len(self.records(consumer, 10)), 10)


class Groups(Live):
    def group(self, name, **config):
        return self.consumer(group_id=name, auto_offset_reset="earliest", **config)

    def test_a_subscriber_is_told_its_partitions_and_goes_on_where_it_committed(self):
        self.fill(100)
        told = []
        consumer = self.group(self.topic, enable_auto_commit=False)
        consumer.subscribe([self.topic], on_assigned=lambda parts: told.append(("assigned", parts)),
                           on_revoked=lambda parts: told.append(("revoked", parts)))
        self.batches(consumer, 100)
        at = ck.TopicPartition(self.topic, 0)
        self.assertEqual(told, [("assigned", [at])])
        consumer.commit({at: 60})
        self.assertEqual(consumer.committed([at]), {at: 60})
        consumer.unsubscribe()
        self.assertEqual(told[1:], [("revoked", [at])])
        again = self.group(self.topic)
        again.subscribe(self.topic)
        self.assertEqual(self.records(again, 40)[0].offset, 60)
        again.commit()
        self.assertEqual(again.committed([at]), {at: 100})

    def test_the_data_of_a_group_comes_one_sidedly(self):
        self.fill(10)
        consumer = self.group(self.topic, transport="rdma")
        consumer.subscribe([self.topic])
        self.assertTrue(self.batches(consumer, 10)[0].in_place)

    def test_what_a_callback_raises_comes_out_of_poll(self):
        self.fill(1)
        consumer = self.group(self.topic)

        def refuse(_):
            raise LookupError("no room for it")

        consumer.subscribe([self.topic], on_assigned=refuse)
        with self.raises(LookupError, "no room"):
            end = time.monotonic() + 10
            while time.monotonic() < end:
                consumer.poll(0.5)
        self.assertEqual(len(self.records(consumer, 1)), 1)

    def test_a_callback_may_call_the_consumer(self):
        self.fill(50)
        consumer = self.group(self.topic)
        consumer.subscribe([self.topic], on_assigned=lambda parts: [consumer.seek(*part, 30) for part in parts])
        self.assertEqual(self.records(consumer, 20)[0].offset, 30)

    def test_nothing_committed_is_none(self):
        self.fill(1)
        consumer = self.group(self.topic)
        at = ck.TopicPartition(self.topic, 0)
        self.assertEqual(consumer.committed([at]), {at: None})


class Errors(Live):
    def test_wrong_settings_name_key_value_and_what_is_allowed(self):
        with self.raises(ck.InvalidConfig, "transport", "pigeon", "auto, rdma, tcp"):
            self.consumer(transport="pigeon")
        with self.raises(ValueError, "no.such.key"):
            self.consumer(no_such_key=1)
        with self.raises(ck.InvalidConfig, "bootstrap.servers"):
            ck.Consumer({})

    def test_a_closed_consumer_says_so(self):
        consumer = self.consumer()
        consumer.close()
        consumer.close()
        consumer.wakeup()
        for call in (lambda: consumer.poll(0), consumer.metrics, lambda: consumer.assign([]), lambda: consumer.path("t", 0)):
            with self.raises(ck.InvalidState, "closed"):
                call()

    def test_an_unknown_topic_is_the_brokers_error_with_its_code(self):
        consumer = self.consumer(allow_auto_create_topics=False)
        consumer.assign([("no-such-topic", 0, ck.BEGINNING)])
        with self.assertRaises(ck.BrokerError) as caught:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                consumer.poll(1)
        self.assertEqual(caught.exception.kafka_code, 3)
        self.assertTrue(caught.exception.retriable)

    def test_an_offset_that_is_gone_is_data_loss_where_asked_for(self):
        self.fill(5)
        consumer = self.consumer(auto_offset_reset="none")
        consumer.assign([(self.topic, 0, 1000)])
        with self.assertRaises(ck.DataLoss):
            end = time.monotonic() + 20
            while time.monotonic() < end:
                consumer.poll(1)

    def test_wakeup_ends_a_poll_of_another_thread(self):
        consumer = self.consumer()
        consumer.assign([])
        threading.Timer(0.3, consumer.wakeup).start()
        started = time.monotonic()
        with self.assertRaises(ck.Interrupted):
            consumer.poll(30)
        self.assertLess(time.monotonic() - started, 10)

    def test_a_second_thread_is_refused_and_other_threads_run_meanwhile(self):
        self.fill(1)
        consumer = self.from_the_beginning()
        self.batches(consumer, 1)
        outcome = []
        thread = threading.Thread(target=lambda: outcome.append(consumer.poll(3)))
        thread.start()
        time.sleep(0.5)
        with self.raises(ck.InvalidState, "another thread"):
            consumer.position(self.topic, 0)
        self.assertEqual(consumer.lag(self.topic, 0), 0)
        thread.join()
        self.assertEqual(outcome, [[]])

    def test_signals_are_handled_during_a_long_poll(self):
        consumer = self.consumer()
        consumer.assign([])

        def handler(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            started = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                consumer.poll(30)
            self.assertLess(time.monotonic() - started, 10)
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(consumer.poll(0), [])

    def test_a_forked_child_is_refused_and_the_parent_goes_on(self):
        self.fill(20)
        consumer = self.from_the_beginning()
        self.batches(consumer, 20)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.poll(0.1)
            except ck.ForkedChild:
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.fill(20)
        self.assertEqual(len(self.records(consumer, 20)), 20)


class WithoutOneSided(Live):
    settings = {"onesided.enable": "false"}

    def test_rdma_fails_and_auto_says_why_not(self):
        self.fill(3)
        consumer = self.from_the_beginning(transport="rdma")
        with self.assertRaises(ck.NoOneSidedPath):
            end = time.monotonic() + 20
            while time.monotonic() < end:
                consumer.poll(1)
        consumer = self.from_the_beginning(transport="auto")
        self.assertEqual(len(self.records(consumer, 3)), 3)
        path = consumer.path(self.topic, 0)
        self.assertEqual(path.path, "tcp")
        self.assertTrue(path.reason)


if __name__ == "__main__":
    counted.main()

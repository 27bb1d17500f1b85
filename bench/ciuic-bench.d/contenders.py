"""The peers and limits that benchmarks pick from."""

import dataclasses

import settings
from declare import Contender


def limit(name, program_word, what):
    return Contender(name, what, kind="limit", broker="", driver="bench_limits", words={"what": program_word})


MEMCPY = limit("memcpy", "memcpy", "memory copied to memory, as many bytes as the log has")
MEMCPY_REUSED = limit("memcpy, one buffer", "memcpy_reused", "the same into one buffer of 1 MiB, as a reader copies out")
CRC32C = limit("crc32c", "crc32c", "the product's CRC32C over as many bytes")
SHM = limit("shm read", "shm", "CRC32C over another process's shared memory")
TCP = limit("tcp stream", "tcp", "a plain TCP stream over loopback, as many sockets as readers")
RELAY = Contender("relay", "a process that hands each record on over TCP and does nothing else: what waking it and the reader costs",
                  kind="limit", broker="", driver="bench_relay")
DISK = limit("disk", "file", "the segment files read from the disk, 1 MiB at a time")

ONE_SIDED = Contender("one-sided", "our client reads our broker's memory; batches as views, each CRC checked",
                      words={"delivery": "views"}, settings=settings.OUR_READER + settings.ONE_SIDED)
ONE_SIDED_COPIED = dataclasses.replace(ONE_SIDED, name="one-sided, copied", words={"delivery": "copied"},
                                       what="the same, and every batch is copied into the program's own buffer")
OUR_TCP = Contender("tcp", "our client by Fetch over TCP from our broker; CRC checked",
                    words={"delivery": "views"}, settings=settings.OUR_READER + settings.OUR_TCP)
OUR_TCP_UNCHECKED = dataclasses.replace(OUR_TCP, name="tcp, CRC unchecked", what="the same with check.crcs=false: no more work than a plain stream's reader has",
                                        settings=settings.OUR_READER + settings.OUR_TCP + settings.UNCHECKED)
RDKAFKA_OURS = Contender("librdkafka, ours", "librdkafka from our broker; CRC checked", driver="bench_librdkafka",
                         words={"delivery": "views"}, settings=settings.LIBRDKAFKA_READER)
RDKAFKA_APACHE = dataclasses.replace(RDKAFKA_OURS, name="librdkafka, Apache", broker="apache", what="librdkafka from Apache Kafka; CRC checked")
RDKAFKA_APACHE_MANY = dataclasses.replace(RDKAFKA_APACHE, settings=settings.LIBRDKAFKA_SMALL_READER)


def reading_records(contender):
    """The same, every record unpacked and looked at."""
    return dataclasses.replace(contender, what=contender.what + "; every record is unpacked", words={**contender.words, "delivery": "records"})


# Where the driver unpacks by itself.
ONE_SIDED_RECORDS, OUR_TCP_RECORDS, RDKAFKA_OURS_RECORDS, RDKAFKA_APACHE_RECORDS = (
    dataclasses.replace(reading_records(one), words={}) for one in (ONE_SIDED, OUR_TCP, RDKAFKA_OURS, RDKAFKA_APACHE))


WRITE_OURS = Contender("ours", "our client to our broker", settings=settings.OUR_WRITER)
WRITE_RDKAFKA_OURS = Contender("librdkafka, ours", "librdkafka to our broker", driver="bench_librdkafka", settings=settings.LIBRDKAFKA_WRITER)
WRITE_RDKAFKA_APACHE = dataclasses.replace(WRITE_RDKAFKA_OURS, name="librdkafka, Apache", broker="apache", what="librdkafka to Apache Kafka")

PROMPT_ONE_SIDED = Contender("one-sided", "our client writes to our broker and reads its memory", settings=settings.OUR_PROMPT_WRITER,
                             reader_settings=settings.ONE_SIDED)
PROMPT_TCP = dataclasses.replace(PROMPT_ONE_SIDED, name="tcp", what="our client writes to our broker and reads by Fetch over TCP",
                                 reader_settings=settings.OUR_TCP)
PROMPT_RDKAFKA_OURS = Contender("librdkafka, ours", "librdkafka writes to our broker and reads from it", driver="bench_librdkafka",
                                settings=settings.LIBRDKAFKA_PROMPT_WRITER, reader_settings=settings.LIBRDKAFKA_PROMPT_READER)
PROMPT_RDKAFKA_APACHE = dataclasses.replace(PROMPT_RDKAFKA_OURS, name="librdkafka, Apache", broker="apache",
                                            what="librdkafka writes to Apache Kafka and reads from it")

# A process that writes, and one that reads.
WRITE_AND_READ = tuple(dataclasses.replace(write, name=read.name, what=f"{write.what}; {read.what}", words=read.words, reader_settings=read.settings)
                       for write, read in ((WRITE_OURS, ONE_SIDED), (WRITE_OURS, OUR_TCP), (WRITE_RDKAFKA_OURS, dataclasses.replace(RDKAFKA_OURS, settings=settings.LIBRDKAFKA_SMALL_READER)),
                                           (WRITE_RDKAFKA_APACHE, RDKAFKA_APACHE_MANY)))

MEMBERS = (
    Contender("ours", "our client's group on our broker", settings=settings.OUR_MEMBER),
    Contender("librdkafka, ours", "librdkafka's group on our broker", driver="bench_librdkafka", settings=settings.LIBRDKAFKA_MEMBER),
    Contender("librdkafka, Apache", "librdkafka's group on Apache Kafka", broker="apache", driver="bench_librdkafka", settings=settings.LIBRDKAFKA_MEMBER),
)

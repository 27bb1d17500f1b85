"""Every setting that is not a default, and why. Shared by the benchmarks; bench/README.md has the table, made from here."""

from declare import Setting


def _of(who, *rows):
    return tuple(Setting(who, key, value, reason) for key, value, reason in rows)


# Both brokers alike.
SMALL_SEGMENTS = _of(
    "both brokers",
    ("log.segment.bytes", "134217728", "a round's deleted records free their files before the next but one, so that both brokers stay at one size"),
    ("log.retention.check.interval.ms", "2000", "the same"),
    ("log.segment.delete.delay.ms", "1000", "the same"),
)
COLD = _of(
    "our broker",
    ("log.memory.bytes", "67108864", "the smallest: the log is many times what it may hold, as a day-old log is; Apache's page cache of it is dropped before each round"),
)
APACHE_JVM = _of(
    "Apache's broker",
    ("KAFKA_HEAP", "1g", "what its own start script gives (-Xmx1G); the rest of the memory is its page cache, as its documentation asks"),
    ("JAVA_TOOL_OPTIONS", "-Xms1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent",
     "the options of its own start script"),
)

# Readers at full speed.
OUR_READER = _of(
    "our reader",
    ("fetch.max.wait.ms", "1", "a second pass would begin behind a Fetch that waits at the end of the first"),
    ("max.partition.fetch.bytes", "8388608", "large answers, as librdkafka's reader gets them"),
)
ONE_SIDED = _of("our reader", ("transport", "rdma", "insist: a fall-back to TCP would measure something else"))
UNCHECKED = _of("our reader", ("check.crcs", "false", "a plain TCP stream's reader checks nothing either; true is the default"))
OUR_TCP = _of("our reader", ("transport", "tcp", "the same client without one-sided reads"))
LIBRDKAFKA_READER = _of(
    "librdkafka's reader",
    ("group.id", "ciuic-bench", "its consumer does not open without one; partitions are assigned by hand"),
    ("enable.auto.commit", "false", "ours commits nothing either without a group"),
    ("check.crcs", "true", "ours always checks"),
    ("fetch.wait.max.ms", "1", "as ours"),
    ("fetch.message.max.bytes", "8388608", "as ours"),
    ("queued.min.messages", "10000000", "a full queue makes this version wait for a second before the next Fetch"),
    ("queued.max.messages.kbytes", "2097151", "the same"),
)

# Writers at full speed.
OUR_WRITER = _of(
    "our writer",
    ("acks", "all", "what a site that wants its data uses; the default of all three clients"),
    ("enable.idempotence", "true", "the default of Java's client and ours"),
    ("linger.ms", "5", "the default of all three clients"),
    ("batch.size", "131072", "our default; Java's 16 KiB and librdkafka's 1 MB would compare clients, not brokers"),
)
LIBRDKAFKA_WRITER = _of(
    "librdkafka's writer",
    ("acks", "all", "as ours"),
    ("enable.idempotence", "true", "as ours"),
    ("linger.ms", "5", "as ours"),
    ("batch.size", "131072", "as ours"),
    ("socket.nagle.disable", "true", "ours and Java's do the same"),
)
FILL = _of(
    "whoever fills a topic",
    ("batch.size", "262144", "batches as a bulk producer makes them; one producer (ours) fills for all, so that all read the same bytes"),
    ("linger.ms", "20", "full batches"),
    ("max.request.size", "4194304", "records of any size that is measured"),
)

# One record at a time.
OUR_PROMPT_WRITER = _of(
    "our writer",
    ("acks", "all", "what a site that wants its data uses; the default of all three clients"),
    ("enable.idempotence", "true", "the default of Java's client and ours"),
    ("linger.ms", "0", "latency is measured: nobody waits for company"),
)
LIBRDKAFKA_PROMPT_WRITER = _of(
    "librdkafka's writer",
    ("acks", "all", "as ours"),
    ("enable.idempotence", "true", "as ours"),
    ("linger.ms", "0", "as ours"),
    ("socket.nagle.disable", "true", "ours and Java's do the same"),
)
LIBRDKAFKA_PROMPT_READER = _of(
    "librdkafka's reader",
    ("group.id", "ciuic-bench", "its consumer does not open without one; partitions are assigned by hand"),
    ("enable.auto.commit", "false", "ours commits nothing either without a group"),
    ("check.crcs", "true", "ours always checks"),
    ("socket.nagle.disable", "true", "ours and Java's do the same"),
)
# Groups.
PROMPT_GROUPS = _of(
    "both brokers",
    ("group.initial.rebalance.delay.ms", "0", "the wait for company would be most of what is measured"),
)
OUR_MEMBER = _of(
    "our member",
    ("group.id", "ciuic-bench", "the group"),
    ("heartbeat.interval.ms", "500", "members learn of a rebalance by their heartbeats; the default of 3 s would be most of what is measured"),
)
LIBRDKAFKA_MEMBER = _of(
    "librdkafka's member",
    ("group.id", "ciuic-bench", "the group"),
    ("heartbeat.interval.ms", "500", "as ours"),
    ("partition.assignment.strategy", "range,roundrobin", "the default of both"),
)
# Dozens of readers in one process.
LIBRDKAFKA_SMALL_READER = tuple(
    setting for setting in LIBRDKAFKA_READER if not setting.key.startswith("queued.")
) + _of(
    "librdkafka's reader",
    ("queued.min.messages", "1000000", "the whole topic fits, so that it never waits for a second behind a full queue"),
    ("queued.max.messages.kbytes", "131072", "the same, for 64 readers in this machine's memory"),
)
# HDFS with Flume. What one machine needs (addresses, one replica) is tools/peers/hdfs-flume's; its defaults suit neither side's rates.
HDFS_FLUME_JVM = _of(
    "HDFS and Flume",
    ("PEER_HEAP", "1g", "of each of the three JVMs; as Apache's broker"),
)
FLUME_AGENT = _of(
    "Flume's agent",
    ("agent.channels.memory.capacity", "100000", "the default of 100 events is below one batch; 100 MiB of the heap"),
    ("agent.channels.memory.transactionCapacity", "10000", "the same"),
    ("agent.sinks.hdfs.hdfs.fileType", "DataStream", "the events as they are; a SequenceFile adds a key to each"),
    ("agent.sinks.hdfs.hdfs.writeFormat", "Text", "what its documentation asks for where others than Hive's old versions read"),
    ("agent.sinks.hdfs.serializer.appendNewline", "false", "the bytes that were sent are those that are read"),
    ("agent.sinks.hdfs.hdfs.rollSize", "134217728", "a file a block of HDFS; the default of 1 KiB makes a file an event"),
    ("agent.sinks.hdfs.hdfs.rollCount", "0", "by size and time alone; the default makes a file of ten events"),
)
FLUME_FAST = FLUME_AGENT + _of(
    "Flume's agent",
    ("agent.sinks.hdfs.hdfs.batchSize", "1000", "an hflush every 1,000 events rather than 100, as a site that wants throughput sets it"),
)
FLUME_PROMPT = FLUME_AGENT + _of(
    "Flume's agent",
    ("agent.sinks.hdfs.hdfs.rollInterval", "10", "a round's length; the default of 30 s makes readers of closed files wait three times as long"),
)
FLUME_SENDER = _of(
    "Flume's sender",
    ("batch-size", "1000", "as the sink's; larger batches than the default of 100 are fewer calls"),
)


def words(settings, prefix="set."):
    """As a driver takes them."""
    return {prefix + setting.key: setting.value for setting in settings}

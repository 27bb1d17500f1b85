// The driver of ciuic-bench for HDFS with Flume: sends events to an agent's Avro source and reads the files that its sink writes.
//   HdfsFlume bulk|latency key=value …      words as bench_client takes them; prints a JSON object a line
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.flume.Event;
import org.apache.flume.EventDeliveryException;
import org.apache.flume.api.RpcClient;
import org.apache.flume.api.RpcClientFactory;
import org.apache.flume.event.EventBuilder;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;

public final class HdfsFlume {
  private static final org.apache.hadoop.fs.Path EVENTS = new org.apache.hadoop.fs.Path("/events");
  private static final String OPEN = ".tmp"; // the sink's name for a file that it still writes
  private static final long NO_DATA_LONGEST_NS = 60_000_000_000L;

  private final Map<String, String> words = new HashMap<>();
  private final int recordBytes;
  private final FileSystem hdfs;
  private final byte[] buffer = new byte[1 << 20];

  private HdfsFlume(String[] given) throws IOException {
    for (String word : Arrays.asList(given).subList(1, given.length)) {
      int at = word.indexOf('=');
      if (at < 1) throw new IllegalArgumentException(word + ": write key=value");
      words.put(word.substring(0, at), word.substring(at + 1));
    }
    recordBytes = (int) number("record.bytes");
    Configuration settings = new Configuration();
    settings.set("fs.defaultFS", "hdfs://" + text("namenode"));
    hdfs = FileSystem.get(settings);
  }

  public static void main(String[] given) throws Exception {
    if (given.length == 0) throw new IllegalArgumentException("bulk or latency");
    HdfsFlume driver = new HdfsFlume(given);
    switch (given[0]) {
      case "bulk" -> driver.bulk();
      case "latency" -> driver.latency();
      default -> throw new IllegalArgumentException(given[0] + ": bulk or latency");
    }
    System.out.flush();
    System.exit(0); // the libraries' threads are of no use any more
  }

  private String text(String key) {
    String value = words.get(key);
    if (value == null) throw new IllegalArgumentException(key + " is missing");
    return value;
  }

  private long number(String key) {
    return Long.parseLong(text(key));
  }

  private RpcClient sender() {
    Properties settings = new Properties();
    settings.setProperty("hosts", "agent");
    settings.setProperty("hosts.agent", text("agent"));
    words.forEach((key, value) -> {
      if (key.startsWith("set.")) settings.setProperty(key.substring(4), value);
    });
    return RpcClientFactory.getInstance(settings);
  }

  /** A full channel refuses a batch whole: it is sent again until there is room. */
  private static void deliver(RpcClient sender, List<Event> batch) throws EventDeliveryException {
    for (int refused = 0;; refused++) {
      try {
        sender.appendBatch(batch);
        return;
      } catch (EventDeliveryException error) {
        if (refused == 100 || !sender.isActive()) throw error;
      }
    }
  }

  // --- HDFS ---

  /** How much of each file can be read now, by its name once closed. Of an open file that is what was flushed to its DataNode. */
  private Map<String, Long> readable() throws IOException {
    Map<String, Long> found = new HashMap<>();
    if (!hdfs.exists(EVENTS)) return found;
    for (FileStatus file : hdfs.listStatus(EVENTS)) {
      String name = file.getPath().getName();
      if (!name.endsWith(OPEN)) {
        found.put(name, file.getLen());
        continue;
      }
      try (FSDataInputStream in = hdfs.open(file.getPath())) {
        found.put(closed(name), ((HdfsDataInputStream) in).getVisibleLength());
      } catch (FileNotFoundException error) {
        found.put(closed(name), hdfs.getFileStatus(new org.apache.hadoop.fs.Path(EVENTS, closed(name))).getLen()); // renamed meanwhile
      }
    }
    return found;
  }

  private static String closed(String name) {
    return name.endsWith(OPEN) ? name.substring(0, name.length() - OPEN.length()) : name;
  }

  private FSDataInputStream open(String name) throws IOException {
    try {
      return hdfs.open(new org.apache.hadoop.fs.Path(EVENTS, name));
    } catch (FileNotFoundException error) {
      return hdfs.open(new org.apache.hadoop.fs.Path(EVENTS, name + OPEN));
    }
  }

  private static long sum(Map<String, Long> lengths) {
    return lengths.values().stream().mapToLong(Long::longValue).sum();
  }

  private Map<String, Long> awaitReadable(long bytes) throws Exception {
    long last = -1;
    long since = System.nanoTime();
    while (true) {
      Map<String, Long> now = readable();
      long there = sum(now);
      if (there >= bytes) return now;
      if (there > last) {
        last = there;
        since = System.nanoTime();
      } else if (System.nanoTime() - since > NO_DATA_LONGEST_NS) {
        throw new IOException("nothing came into HDFS for a minute; " + there + " of " + bytes + " bytes are there");
      }
      Thread.sleep(10);
    }
  }

  // --- as much as it takes, then all of it read ---

  private void bulk() throws Exception {
    long records = number("records");
    int senders = (int) number("senders");
    int batchSize = (int) number("set.batch-size");
    byte[] random = new byte[recordBytes];
    Random source = new Random(1);
    List<Event> batch = new ArrayList<>();
    for (int i = 0; i < batchSize; i++) {
      source.nextBytes(random);
      batch.add(EventBuilder.withBody(random.clone()));
    }
    List<RpcClient> clients = new ArrayList<>();
    for (int i = 0; i < senders; i++) clients.add(sender());

    // Connections and an open file are had, and the client's hot code is compiled, before the clock starts.
    long before = sum(readable());
    send(clients, batch, number("warm.records"));
    Map<String, Long> from = awaitReadable(before + number("warm.records") * recordBytes);
    Meter meter = new Meter(text("watch"));
    send(clients, batch, records);
    Map<String, Long> to = awaitReadable(sum(from) + records * recordBytes);
    meter.print("write", records, records * recordBytes, "");
    for (RpcClient client : clients) client.close();

    for (long pass = 1; pass <= number("passes"); pass++) {
      meter = new Meter(text("watch"));
      long bytes = 0;
      for (String name : to.keySet()) bytes += read(name, from.getOrDefault(name, 0L), to.get(name));
      if (bytes != records * recordBytes) throw new IOException("read " + bytes + " bytes, not " + records * recordBytes);
      meter.print("read", records, bytes, "");
    }
  }

  private static void send(List<RpcClient> clients, List<Event> batch, long records) throws Exception {
    List<Thread> threads = new ArrayList<>();
    List<Throwable> failures = new ArrayList<>();
    for (int i = 0; i < clients.size(); i++) {
      RpcClient client = clients.get(i);
      long mine = records / clients.size() + (i < records % clients.size() ? 1 : 0);
      threads.add(new Thread(() -> {
        try {
          for (long left = mine; left > 0; left -= batch.size()) deliver(client, left < batch.size() ? batch.subList(0, (int) left) : batch);
        } catch (EventDeliveryException error) {
          synchronized (failures) {
            failures.add(error);
          }
        }
      }));
      threads.get(i).start();
    }
    for (Thread thread : threads) thread.join();
    if (!failures.isEmpty()) throw new IOException("the agent took no more events", failures.get(0));
  }

  private long read(String name, long from, long to) throws IOException {
    if (to <= from) return 0;
    long left = to - from;
    try (FSDataInputStream in = open(name)) {
      in.seek(from);
      while (left > 0) {
        int got = in.read(buffer, 0, (int) Math.min(left, buffer.length));
        if (got < 0) throw new IOException(name + " ends " + left + " bytes early");
        left -= got;
      }
    }
    return to - from;
  }

  // --- one event at a time ---

  /** What the reader has of a file: how far, and when its events were due. */
  private static final class Followed {
    long at;
    final List<Long> due = new ArrayList<>();
    long closedAt;
  }

  private final Map<String, Followed> followed = new HashMap<>();
  private final List<Long> latencies = new ArrayList<>();
  private long lastSent; // by the sender's thread; read after it ended

  private void latency() throws Exception {
    long rate = number("rate");
    long warm = number("warm.records");
    long count = rate * number("seconds");
    RpcClient sender = sender();
    byte[] random = new byte[recordBytes];
    new Random(1).nextBytes(random);
    for (Map.Entry<String, Long> file : readable().entrySet()) {
      Followed one = new Followed();
      one.at = file.getValue();
      one.closedAt = 1; // none of its earlier events is ours
      followed.put(file.getKey(), one);
    }
    // The same as what is measured, so that its code is compiled; what comes of it is not counted.
    follow(sender, random, warm, rate);
    latencies.clear();
    for (Followed one : followed.values()) one.due.clear();

    Meter meter = new Meter(text("watch"));
    long start = System.nanoTime();
    follow(sender, random, count, rate);
    double sentIn = (lastSent - start) / 1e9;
    long[] sorted = latencies.stream().mapToLong(Long::longValue).sorted().toArray();
    StringBuilder more = new StringBuilder(String.format(Locale.ROOT, ",\"rate_sent\":%.3f,\"missing\":%d", Math.min(rate, count / Math.max(sentIn, 1e-9)), count - sorted.length));
    double[] percents = {50, 90, 99, 99.9, 99.99, 100};
    String[] names = {"p50", "p90", "p99", "p999", "p9999", "max"};
    for (int i = 0; i < names.length; i++) more.append(String.format(Locale.ROOT, ",\"%s_us\":%.3f", names[i], at(sorted, percents[i]) / 1e3));
    Meter.Spent spent = meter.read();
    // A program that reads closed files alone, as a job over a folder does, waits for the sink to close them.
    awaitClosed();
    long[] closed = followed.values().stream().flatMapToLong(one -> one.due.stream().mapToLong(due -> one.closedAt - due)).sorted().toArray();
    more.append(String.format(Locale.ROOT, ",\"closed_p50_s\":%.3f,\"closed_max_s\":%.3f", at(closed, 50) / 1e9, at(closed, 100) / 1e9));
    spent.print("latency", count, count * recordBytes, more.toString());
    sender.close();
  }

  private static double at(long[] sorted, double percent) {
    if (sorted.length == 0) return 0;
    return sorted[Math.max((int) Math.ceil(sorted.length * percent / 100) - 1, 0)];
  }

  /** Sends so many at that rate from another thread, and reads until all came, or ten seconds went by after the last. */
  private void follow(RpcClient sender, byte[] body, long count, long rate) throws Exception {
    List<Throwable> failures = new ArrayList<>();
    long start = System.nanoTime();
    Thread sending = new Thread(() -> {
      try {
        for (long sent = 0; sent < count;) {
          long due = start + sent * 1_000_000_000L / rate;
          long now = System.nanoTime();
          if (now < due) {
            java.util.concurrent.locks.LockSupport.parkNanos(due - now);
            continue;
          }
          // What has become due meanwhile goes along, as of one program that writes.
          List<Event> batch = new ArrayList<>();
          for (; sent < count && batch.size() < 1000 && (due = start + sent * 1_000_000_000L / rate) <= now; sent++) {
            byte[] copy = body.clone();
            ByteBuffer.wrap(copy).putLong(due);
            batch.add(EventBuilder.withBody(copy));
          }
          deliver(sender, batch);
          lastSent = System.nanoTime();
        }
      } catch (EventDeliveryException error) {
        synchronized (failures) {
          failures.add(error);
        }
      }
    });
    sending.start();
    long end = start + count * 1_000_000_000L / rate + 10_000_000_000L;
    int already = latencies.size();
    while (latencies.size() - already < count && System.nanoTime() < end) {
      lookForMore();
      Thread.sleep(number("poll.ms"));
    }
    sending.join();
    if (!failures.isEmpty()) throw new IOException("the agent took no more events", failures.get(0));
  }

  private void lookForMore() throws IOException {
    if (!hdfs.exists(EVENTS)) return;
    for (FileStatus file : hdfs.listStatus(EVENTS)) {
      String name = file.getPath().getName();
      Followed one = followed.computeIfAbsent(closed(name), unseen -> new Followed());
      boolean isOpen = name.endsWith(OPEN);
      if (!isOpen && one.closedAt != 0 && one.at >= file.getLen()) continue;
      take(name, one);
      if (!isOpen && one.at >= file.getLen()) one.closedAt = System.nanoTime();
    }
  }

  /** The whole events that are there by now and were not before. */
  private void take(String name, Followed one) throws IOException {
    try (FSDataInputStream in = hdfs.open(new org.apache.hadoop.fs.Path(EVENTS, name))) {
      long length = ((HdfsDataInputStream) in).getVisibleLength();
      if (length - one.at < recordBytes) return;
      in.seek(one.at);
      while (length - one.at >= recordBytes) {
        int size = (int) Math.min(length - one.at, buffer.length) / recordBytes * recordBytes;
        in.readFully(buffer, 0, size);
        long now = System.nanoTime();
        for (int at = 0; at < size; at += recordBytes) {
          long due = ByteBuffer.wrap(buffer, at, 8).getLong();
          one.due.add(due);
          latencies.add(now - due);
        }
        one.at += size;
      }
    } catch (FileNotFoundException error) {
      return; // renamed meanwhile: the next look has it by its new name
    }
  }

  private void awaitClosed() throws Exception {
    long end = System.nanoTime() + NO_DATA_LONGEST_NS;
    while (followed.values().stream().anyMatch(one -> !one.due.isEmpty() && one.closedAt == 0)) {
      if (System.nanoTime() > end) throw new IOException("the sink did not close its file within a minute");
      lookForMore();
      Thread.sleep(20);
    }
  }

  /** Wall and CPU time from here on, of this process and of the servers. */
  private static final class Meter {
    private final String[] watched;
    private final long start = System.nanoTime();
    private final double client = ownCpu();
    private final double servers;

    Meter(String pids) throws IOException {
      watched = pids.split(",");
      servers = cpuOf(watched);
    }

    record Spent(double seconds, double client, double servers) {
      void print(String what, long records, long bytes, String more) {
        System.out.printf(Locale.ROOT, "{\"what\":\"%s\",\"records\":%d,\"bytes\":%d,\"seconds\":%.6f,\"library\":\"flume and hdfs\","
            + "\"client\":{\"cpu_seconds\":%.6f},\"broker\":{\"cpu_seconds\":%.6f}%s}%n", what, records, bytes, seconds, client, servers, more);
      }
    }

    Spent read() throws IOException {
      return new Spent((System.nanoTime() - start) / 1e9, ownCpu() - client, cpuOf(watched) - servers);
    }

    void print(String what, long records, long bytes, String more) throws IOException {
      read().print(what, records, bytes, more);
    }

    private static double ownCpu() {
      return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    /** User and system time, to a tick of 10 ms. */
    private static double cpuOf(String[] pids) throws IOException {
      double out = 0;
      for (String pid : pids) {
        String stat = Files.readString(Path.of("/proc", pid, "stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        out += (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
      }
      return out;
    }
  }
}

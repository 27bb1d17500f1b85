// Closed loop: as fast as the library takes records, so many or so long, until all are acknowledged.
#include <fmt/core.h>

#include "bench/drivers/meter.h"
#include "bench/drivers/payload.h"
#include "bench/drivers/workloads.h"

namespace ciuic::bench {

void run_produce(Words& words) {
  const auto topic = words.text("topic");
  const std::chrono::seconds seconds(words.number("seconds", 0));
  const auto records_most = seconds.count() > 0 ? UINT64_MAX : words.number("records");
  const auto record_bytes = words.number("record.bytes");
  const auto warm_records = words.number("warm.records", 1000);
  Payload payload(words.text("payload", "random"), record_bytes);
  const auto watched = static_cast<pid_t>(words.number("watch", 0));
  const auto settings = words.settings();
  words.all_used();

  const auto writer = open_writer(settings, topic);
  // Connections, metadata and the producer's id are had before the clock starts.
  for (std::uint64_t i = 0; i < warm_records; ++i) writer->send(payload.next());
  writer->flush();

  const Meter meter(watched);
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t records = 0;
  const auto over = [&] { return seconds.count() > 0 && std::chrono::steady_clock::now() - start >= seconds; };
  // The clock is asked once in many records: it is no part of what is measured.
  while (records < records_most && !(records % 64 == 0 && over())) {
    writer->send(payload.next());
    ++records;
  }
  writer->flush();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  nlohmann::ordered_json out{{"records", records},
                             {"warm_records", warm_records},
                             {"bytes", records * record_bytes},
                             {"seconds", wall.count()},
                             {"path", "tcp"},
                             {"library", library()}};
  out.update(meter.read());
  fmt::print("{}\n", out.dump());
}

}  // namespace ciuic::bench

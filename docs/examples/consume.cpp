// Reads partition 0 of a topic from its beginning to its end: consume HOST:PORT TOPIC
#include <cstdio>

#include "ciuic/client.h"

int main(int, char** argv) {
  auto consumer = ciuic::client::Consumer::open({{"bootstrap.servers", argv[1]}, {"transport", "auto"}}).value();
  consumer.assign({{{argv[2], 0, ciuic::client::offset_beginning}}}).value();
  for (;;) {
    const auto batches = consumer.poll(std::chrono::seconds(1)).value();
    if (batches.empty()) return 0;
    for (const auto& batch : batches) std::printf("%lld %d\n", (long long)batch.base_offset(), batch.record_count());
  }
}

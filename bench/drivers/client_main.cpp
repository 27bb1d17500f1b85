// bench_client (our client) and bench_librdkafka: one workload over one client library, JSON out.
//   bench_client produce topic=t records=1000000 record.bytes=1024 watch=PID set.bootstrap.servers=127.0.0.1:9092 …
//   bench_client consume | latency | idle | group | train …      workloads.h has the words; set.KEY=VALUE are the
//   library's settings
#include <fmt/core.h>

#include <string_view>

#include "bench/drivers/peer.h"
#include "bench/drivers/workloads.h"

int main(int argc, char** argv) {
  using namespace ciuic::bench;
  const std::string_view workload = argc > 1 ? argv[1] : "";
  try {
    Words words(argc, argv, 2);
    if (workload == "produce") {
      run_produce(words);
    } else if (workload == "consume") {
      run_consume(words);
    } else if (workload == "latency") {
      run_latency(words);
    } else if (workload == "idle") {
      run_idle(words);
    } else if (workload == "group") {
      run_group(words);
    } else if (workload == "train") {
      run_train(words);
    } else if (workload == "version") {
      fmt::print("{}\n", library());
    } else {
      fmt::print(stderr,
                 "'{}': produce, consume, latency, idle, group, train or version; bench/ciuic-bench knows the rest\n",
                 workload);
      return 2;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", workload, error.what());
    return 1;
  }
  return 0;
}

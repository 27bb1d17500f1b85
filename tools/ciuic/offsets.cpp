// ciuic offsets: where a topic begins and ends, and where a time lies in it.
#include <fmt/core.h>

#include <memory>

#include "tools/ciuic/cluster.h"
#include "tools/ciuic/commands.h"

namespace ciuic::tool {

void add_offsets(CLI::App& app, Common& common) {
  struct Options {
    std::string topic;
    std::string at;
  };
  auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand("offsets", "First and next offsets of a topic, or the offset of a time");
  add_common(*command, common);
  command->add_option("topic", options->topic, "The topic")->required();
  command->add_option("--at", options->at, "A time: milliseconds since 1970, or 2026-01-31T12:00:00 (UTC)");
  command->callback([&common, options] {
    Cluster cluster(common.bootstrap, std::chrono::milliseconds(common.timeout_ms));
    Json out = Json::array();
    if (!options->at.empty()) {
      const auto time = parse_time(options->at.front() == '@' ? options->at.substr(1) : options->at);
      Table table({"PARTITION", "OFFSET"});
      for (const auto& [partition, offset] : cluster.offsets(options->topic, time)) {
        out.push_back({{"partition", partition}, {"offset", offset < 0 ? Json() : Json(offset)}});
        table.row({std::to_string(partition), offset < 0 ? "none later" : std::to_string(offset)});
      }
      return common.json ? print_json(out) : table.print();
    }
    const auto begin = cluster.offsets(options->topic, -2);
    const auto end = cluster.offsets(options->topic, -1);
    Table table({"PARTITION", "BEGIN", "END", "OFFSETS"});
    std::int64_t total = 0;
    for (const auto& [partition, first] : begin) {
      const auto next = end.at(partition);
      total += next - first;
      out.push_back({{"partition", partition}, {"begin", first}, {"end", next}});
      table.row({std::to_string(partition), std::to_string(first), std::to_string(next), std::to_string(next - first)});
    }
    if (common.json) return print_json(out);
    table.print();
    print(fmt::format("{} in all", total));
  });
}

}  // namespace ciuic::tool

// A server.properties text, and what the broker makes of it. Keys that a topic may have are tried on one.
#include "broker/settings/settings.h"
#include "tests/fuzz/support/input.h"
#include "transport/base/log.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level(log::Level::off);
  const fuzz::Input input(data, size);
  const auto read = parse_properties(as_text(input.rest()));
  if (!read) return must(!read.error().empty()), 0;
  const auto config = make_broker_config(*read);
  must(config || !config.error().empty());
  const Overrides none;
  Overrides topic;
  for (const auto& [key, value] : *read)
    if (find_setting(Scope::topic, key) != nullptr) topic.emplace(key, value);
  if (config) must(make_topic_config(config->log, topic) || !topic.empty());
  must(!describe_broker({*read, none, *read}).empty() && !describe_topic({none, none, *read}, topic).empty());
  (void)make_log_defaults({*read, *read, none});
  return 0;
}

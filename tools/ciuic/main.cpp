// ciuic: the command line. Each subcommand is a file of its own; this one only parses and ends.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#include "client/include/ciuic/client.h"
#include "tools/ciuic/commands.h"
#include "tools/ciuic/failure.h"
#include "tools/ciuic/kafka_words.h"
#include "transport/base/log.h"

namespace ciuic::tool {

void add_common(CLI::App& command, Common& common) {
  command.add_option("-b,--bootstrap,--bootstrap-server", common.bootstrap, "Brokers, host:port[,…]")
      ->capture_default_str();
  command.add_option("--timeout", common.timeout_ms, "Milliseconds to wait for an answer")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  command.add_flag("--json", common.json, "Output for programs");
}

namespace {

/// What Kafka's names of options are here.
std::string hints(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    const auto name = std::string_view(word).substr(0, word.find('='));
    for (const auto& [theirs, ours] : kafka_words)
      if (theirs == name) text += fmt::format("{} is here: {}\n", theirs, ours);
  }
  return text;
}

/// CLI11's text, but where a subcommand is wanted: the word that is none, and those that are.
std::string usage_text(const CLI::App* app, const CLI::Error& error) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  const auto known = app->get_subcommands([](const CLI::App*) { return true; });
  const auto words = app->remaining();
  if (known.empty()) return CLI::FailureMessage::simple(app, error) + hints(words);
  auto text =
      app->get_name() + ": " + (words.empty() ? "a subcommand is required" : words.front() + " is no subcommand");
  for (const auto* each : known) text += (each == known.front() ? ": " : ", ") + each->get_name();
  return text + "\nRun with --help for more information.\n" + hints(words);
}

}  // namespace
}  // namespace ciuic::tool

int main(int argc, char** argv) {
  using namespace ciuic::tool;
  ciuic::log::set_level(ciuic::log::Level::warn);
  CLI::App app("CiuicKafka's command: topics, groups, configs, data, log files, and what this host can do.", "ciuic");
  app.set_version_flag("--version", fmt::format("ciuic {}", ciuic::client::version()));
  app.require_subcommand(1);
  app.failure_message(usage_text);
  app.footer(
      "Exit codes: 0 done; 1 refused by the broker or a file; 2 wrong command line; 3 no broker answers;\n"
      "4 what was looked at is damaged or missing something (log, doctor); 130 interrupted.\n"
      "CIUIC_BOOTSTRAP names the brokers where -b does not. NO_COLOR turns colours off.");
  Common common;
  if (const char* named = std::getenv("CIUIC_BOOTSTRAP"); named != nullptr && *named != '\0') common.bootstrap = named;
  try {
    add_topics(app, common);
    add_groups(app, common);
    add_configs(app, common);
    add_offsets(app, common);
    add_produce(app, common);
    add_consume(app, common);
    add_log(app, common);
    add_doctor(app, common);
    add_completions(app, common);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(Exit::usage);
  } catch (const Failure& failure) {
    std::fflush(stdout);
    std::fputs(fmt::format("{} {}\n", paint(Colour::red, "ciuic:", Stream::error), failure.what()).c_str(), stderr);
    if (!failure.remedy.empty()) std::fputs(fmt::format("       {}\n", failure.remedy).c_str(), stderr);
    return static_cast<int>(failure.exit);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("ciuic: {}\n", error.what()).c_str(), stderr);
    return static_cast<int>(Exit::failed);
  }
  return std::fflush(stdout) == 0 ? 0 : static_cast<int>(Exit::failed);
}

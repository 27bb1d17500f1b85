#pragma once
#include <CLI/CLI.hpp>

#include "tools/ciuic/output.h"

/// Each adds its subcommand, with a callback that does the work and throws Failure.
namespace ciuic::tool {

void add_topics(CLI::App& app, Common& common);
void add_groups(CLI::App& app, Common& common);
void add_configs(CLI::App& app, Common& common);
void add_offsets(CLI::App& app, Common& common);
void add_produce(CLI::App& app, Common& common);
void add_consume(CLI::App& app, Common& common);
void add_log(CLI::App& app, Common& common);
void add_doctor(CLI::App& app, Common& common);
void add_completions(CLI::App& app, Common& common);

/// The options that every command that talks to a broker has.
void add_common(CLI::App& command, Common& common);

}  // namespace ciuic::tool

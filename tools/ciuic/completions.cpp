// ciuic completions: written from the very commands and options that are parsed, so that they cannot disagree.
#include <fmt/core.h>

#include <memory>

#include "tools/ciuic/commands.h"

namespace ciuic::tool {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// Calls `visit(path, command)` for every command, the root with an empty path.
void walk(const CLI::App& app, const std::string& path,
          const std::function<void(const std::string&, const CLI::App&)>& visit) {
  visit(path, app);
  for (const auto* each : subcommands(app))
    walk(*each, path.empty() ? each->get_name() : path + " " + each->get_name(), visit);
}

std::string words_of(const CLI::App& app) {
  std::string words;
  for (const auto* each : subcommands(app)) words += each->get_name() + " ";
  for (const auto& each : options_of(app)) words += each + " ";
  return words;
}

void bash(const CLI::App& root) {
  print(
      "_ciuic() {\n  local word path=\"\" i\n  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n    "
      "case \"$path $word\" in");
  walk(root, "", [](const std::string& path, const CLI::App&) {
    if (!path.empty()) print(fmt::format("      \"{}{}\") path=\" {}\" ;;", " ", path, path));
  });
  print("    esac\n  done\n  case \"$path\" in");
  walk(root, "", [](const std::string& path, const CLI::App& app) {
    print(fmt::format("    \"{}{}\") COMPREPLY=($(compgen -W \"{}\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")) ;;",
                      path.empty() ? "" : " ", path, words_of(app)));
  });
  print("  esac\n}\ncomplete -o default -F _ciuic ciuic");
}

void zsh(const CLI::App& root) {
  print("#compdef ciuic\nautoload -U +X bashcompinit && bashcompinit");
  bash(root);
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\'");
  return "'" + text + "'";
}

void fish(const CLI::App& root) {
  walk(root, "", [](const std::string& path, const CLI::App& app) {
    std::string when = path.empty() ? "__fish_use_subcommand" : "";
    for (const auto& part : CLI::detail::split(path, ' ')) {
      if (!part.empty()) when += (when.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + part);
    }
    for (const auto* each : subcommands(app)) {
      print(fmt::format("complete -c ciuic -n {} -a {} -d {}", quoted(when), each->get_name(),
                        quoted(each->get_description())));
    }
    for (const auto* option : app.get_options()) {
      std::string names;
      for (const auto& name : option->get_snames()) names += " -s " + name;
      for (const auto& name : option->get_lnames()) names += " -l " + name;
      if (!names.empty())
        print(fmt::format("complete -c ciuic -n {}{} -d {}", quoted(when), names, quoted(option->get_description())));
    }
  });
}

}  // namespace

void add_completions(CLI::App& app, Common&) {
  auto shell = std::make_shared<std::string>();
  auto* const command = app.add_subcommand("completions", "Shell completions: source <(ciuic completions bash)");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell] { *shell == "bash" ? bash(app) : *shell == "zsh" ? zsh(app) : fish(app); });
}

}  // namespace ciuic::tool

"""The table of settings in bench/README.md, from the declarations; a test compares them."""

import registry


def _where(names):
    """Short: "all", or "consume*" for every benchmark of that beginning."""
    every = [benchmark.name for benchmark in registry.BENCHMARKS]
    if len(names) == len(every):
        return "all"
    out = []
    for name in names:
        family = [one for one in every if one.split("-")[0] == name.split("-")[0]]
        whole = len(family) > 1 and set(family) <= set(names)
        out.append(name.split("-")[0] + "*" if whole else name)
    return ", ".join(dict.fromkeys(out))


def markdown():
    rows = {}
    for benchmark in registry.BENCHMARKS:
        for setting in benchmark.settings():
            rows.setdefault(setting, []).append(benchmark.name)
    lines = ["| given to | setting | why | in |", "|---|---|---|---|"]
    for setting, names in sorted(rows.items(), key=lambda item: item[0].who):
        lines.append(f"| {setting.who} | `{setting.key}={setting.value}` | {setting.reason} | {_where(names)} |")
    return "\n".join(lines)

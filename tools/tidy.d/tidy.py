"""tools/tidy: see the head of that script. Exits 1 when it has something to say."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')
OURS = re.compile(r"^(transport|broker|client|tests|tools|bench)/|^ciuic/")
GENERATED = "transport/kafka/messages/"


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.splitlines()
    return sorted(path for path in listed if (ROOT / path).is_file())


def room_of(path):
    best = None
    for room in rules.MAY_INCLUDE:
        if (path == room or path.startswith(room + "/")) and (best is None or len(room) > len(best)):
            best = room
    return best


def include_allowed(path, target):
    """True where the room of `path` may include the header `target` (a path from the root)."""
    if target.startswith("ciuic/"):
        target = "client/include/" + target
    room = room_of(path)
    target_room = room_of(target)
    if room is None or target_room is None or target_room == room:
        return True
    for allowed in rules.MAY_INCLUDE[room]:
        # A room listed with rooms of its own below ("transport", "broker") stands for all of them.
        if target_room == allowed or (allowed not in rules.MAY_INCLUDE and target_room.startswith(allowed + "/")):
            return True
        if allowed in ("broker", "client", "tests", "tools") and target_room.startswith(allowed):
            return True
    return False


def banned_in(path, line):
    for name, (where, pattern, instead, _bad, _good) in rules.BANNED.items():
        if where.search(path) and pattern.search(line) and not (name == "stdout" and rules.MAY_PRINT.search(path)):
            yield name, instead


def check_file(path, text):
    lines = text.splitlines()
    if len(lines) > rules.LINES_MAX:
        yield f"{path}:1: {len(lines)} lines; split by what changes together (at most {rules.LINES_MAX})"
    elif len(lines) > rules.LINES_EXPLAIN and rules.CPP.search(path):
        head = "\n".join(lines[:12]).lower()
        if "lines" not in head and "long" not in head:
            yield f"{path}:1: {len(lines)} lines; over {rules.LINES_EXPLAIN} the first comment says why"
    if rules.HASH_COMMENTS.search(path) and lines and rules.FORMATTED_BY_MISTAKE.search(lines[0]):
        yield f"{path}:1: clang-format was here; restore it, and format by tools/tidy --fix, which takes C and C++ only"
    if rules.CPP.search(path) or path.endswith(".py"):
        for number, line in enumerate(lines, 1):
            for name, instead in banned_in(path, line):
                if f"tidy: {name}" not in line:
                    yield f"{path}:{number}: {name}; {instead}"
    if rules.CPP.search(path):
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if found and OURS.search(found.group(1)) and not include_allowed(path, found.group(1)):
                yield f"{path}:{number}: {room_of(path)} may not include {found.group(1)}; see MAY_INCLUDE in tools/tidy.d/rules.py"


def check_readmes(paths):
    folders = {str(pathlib.PurePath(path).parent) for path in paths if rules.PRODUCTION.search(path) and rules.CPP.search(path)}
    for folder in sorted(folders):
        if folder.startswith("client/include/"):
            continue
        readme = ROOT / folder / "README.md"
        if not readme.is_file():
            yield f"{folder}:1: no README.md; say in a few lines what lives here and what it may include"
        elif len(readme.read_text().splitlines()) > 25:
            yield f"{folder}/README.md:1: over 25 lines; the rest belongs in docs/"


def check_tour(paths):
    """The newcomer's walk: each stop's header names the next one in its first comment, and says its own number right."""
    tour = ROOT / "docs" / "tour.md"
    if not tour.is_file():
        return
    stops = re.findall(r"^\d+\. `([^`]+)`", tour.read_text(), re.M)
    for here, following in zip(stops, stops[1:]):
        if here not in paths and not (ROOT / here).exists():
            yield f"docs/tour.md:1: {here} does not exist"
        elif (ROOT / here).is_file() and following not in "\n".join((ROOT / here).read_text().splitlines()[:25]):
            yield f"{here}:1: the walk breaks; its first comment names the next stop, {following}"
    for number, here in enumerate(stops, 1):
        said = re.findall(r"Stop (\d+) of docs/tour", (ROOT / here).read_text()) if (ROOT / here).is_file() else []
        yield from (f"{here}:1: says that it is stop {one} of docs/tour.md; it is {number}" for one in said if int(one) != number)


def tests_in(text):
    """Names of the suites and of the tests that a C++ source defines."""
    pairs = re.findall(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", text, re.M)
    return {suite for suite, _ in pairs} | {name for _, name in pairs} | set(re.findall(r"INSTANTIATE_TEST_SUITE_P\(\w*,\s*(\w+)", text))


def unknown_tests(table, known):
    """`Suite.Test`, `Suite.*` and `Test` in the rows of a page's tables that no source defines."""
    for row in re.findall(r"^\| .*$", table, re.M):
        for suite, name in re.findall(r"`([A-Z]\w+)(?:\.(\w+|\*))?`", row):
            yield from (one for one in (suite, name) if one not in ("", "*") and one not in known)


def check_named_tests():
    page = ROOT / "tests" / "conformance" / "README.md"
    known = set().union(*(tests_in(path.read_text()) for path in (ROOT / "tests").rglob("*.cpp")))
    for name in unknown_tests(page.read_text(), known) if page.is_file() else ():
        yield f"{page.relative_to(ROOT)}:1: there is no test {name}; correct the table"


def check_format(paths, fix):
    sources = [path for path in paths if rules.CPP.search(path)]
    if not sources:
        return
    command = ["clang-format-14", "-i"] if fix else ["clang-format-14", "--dry-run", "-Werror"]
    for start in range(0, len(sources), 100):
        ran = subprocess.run(command + sources[start:start + 100], cwd=ROOT, capture_output=True, text=True)
        for path in sorted({line.split(":")[0] for line in ran.stderr.splitlines() if "clang-format" in line}):
            yield f"{path}:1: not formatted; run tools/tidy --fix"


def git_text(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def git(*arguments):
    return git_text(*arguments).split()


def deep_base(given):
    """What to compare with: the commit given, else where this branch left origin/main, else (on main) the commit before."""
    if given:
        return given
    head = git("rev-parse", "HEAD")
    left_main = git("merge-base", "HEAD", "origin/main")
    return left_main[0] if left_main and left_main != head else "HEAD~1"


def deep_sources(changed):
    """What is compiled to look at the changed files: a header is looked at through its own .cpp, if it has one."""
    ours = [path for path in changed if rules.CPP.search(path) and rules.PRODUCTION.search(path)]
    sources = {re.sub(r"\.h$", ".cpp", path) for path in ours}
    return sorted(path for path in sources if path.endswith(".cpp") and (ROOT / path).is_file())


def changed_lines(diff):
    """The new or changed lines of each file, from a diff without context."""
    lines, path = {}, None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:]
            lines.setdefault(path, set())
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first = int(found.group(1))
            lines[path].update(range(first, first + int(found.group(2) or 1)))
    return lines


def check_deep(base, seconds, build):
    """clang-tidy on the lines that differ from `base`, for `seconds` at most; what there was no time for is said, not
    counted. A file's older warnings are not those of who changes something else in it."""
    given, base = base, deep_base(base)
    if not git("rev-parse", "--verify", f"{base}^{{commit}}"):
        if given:
            yield f"{base}:1: no such commit here; tools/tidy --deep --base COMMIT names one"
        else:
            print("tidy: nothing to compare with, clang-tidy looked at nothing; --base COMMIT names something")
        return
    new = git("ls-files", "--others", "--exclude-standard")
    sources = deep_sources(git("diff", "--name-only", "--diff-filter=AMR", base) + new)
    if sources and not (ROOT / build / "compile_commands.json").is_file():
        yield f"{build}:1: not built; tools/build first"
        return
    end = time.monotonic() + seconds
    left_out, failures = [], []

    def look(path):
        if time.monotonic() >= end:
            left_out.append(path)
            return []
        command = ["clang-tidy-14", "-p", build, "--quiet", f"--header-filter=^{ROOT}/(transport|broker|client)/", path]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        found = re.findall(rf"^{ROOT}/(\S+?):(\d+):\d+: (?:warning|error): (.*)$", ran.stdout, re.M)
        if not found and ran.returncode:
            failures.append(f"{path}:1: clang-tidy ended with {ran.returncode}: {ran.stderr[-300:]}")
        return found

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("CIUIC_JOBS", os.cpu_count()))) as pool:
        warnings = {one for found in pool.map(look, sources) for one in found}  # a header may be met twice
    lines = changed_lines(git_text("diff", "--unified=0", base))
    lines.update({path: range(1 << 30) for path in new})
    counted = {one for one in warnings if int(one[1]) in lines.get(one[0], ())}
    print(f"tidy: clang-tidy looked at {len(sources) - len(left_out)} files that differ from {base}; "
          f"{len(warnings - counted)} warnings in lines that do not")
    if left_out:
        print(f"tidy: {seconds} seconds were over, not looked at: {' '.join(sorted(left_out))}")
    yield from sorted([f"{path}:{line}: {text}" for path, line, text in counted] + failures)


def self_test():
    for name, (_where, pattern, _instead, bad, good) in rules.BANNED.items():
        assert pattern.search(bad), f"rule {name} misses its own bad example"
        assert not pattern.search(good), f"rule {name} refuses its own good example"
    assert not include_allowed("broker/log/a.h", "broker/api/handler.h")
    assert not include_allowed("client/core/a.h", "broker/log/a.h")
    assert not include_allowed("transport/kafka/a.h", "transport/rdma/provider.h")
    # A provider's folder is a room of its own: neither the seam, its users nor another provider may look inside.
    providers = [room for room in rules.MAY_INCLUDE if re.fullmatch(r"transport/rdma/\w+", room)]
    folders = {f"transport/rdma/{path.name}" for path in (ROOT / "transport" / "rdma").iterdir() if path.is_dir()}
    assert folders == set(providers), f"MAY_INCLUDE has no row for {folders ^ set(providers)}"
    for provider in providers:
        for room in ["transport/rdma", "transport/onesided", *providers]:
            assert room == provider or not include_allowed(f"{room}/a.h", f"{provider}/a.h"), (room, provider)
        assert include_allowed("transport/rdma/providers.cpp", f"{provider}/a.h"), provider
    assert rules.FORMATTED_BY_MISTAKE.search("#transport / rdma") and not rules.FORMATTED_BY_MISTAKE.search("# transport")
    known = tests_in("TEST_F(VerbsAttack,\n       Holds) {\nTEST_P(Other, Works) {\nTEST(Third, Is)")
    assert known == {"VerbsAttack", "Holds", "Other", "Works", "Third", "Is"}, known
    table = "`Gone` in prose\n| a | `VerbsAttack.Holds`, `Works`, `Third.*`, `a/b`, `lower` |\n| b | `Other.Left`, `Renamed` |"
    assert list(unknown_tests(table, known)) == ["Left", "Renamed"]
    assert include_allowed("transport/onesided/reader.h", "transport/rdma/provider.h")
    assert include_allowed("broker/api/fetch.cpp", "broker/log/partition.h")
    assert include_allowed("broker/main.cpp", "broker/api/handler.h")
    assert deep_sources(["broker/main.cpp", "transport/onesided/reader.h", "tests/fuzz/run_seeds.cpp", "README.md"]) == [
        "broker/main.cpp", "transport/onesided/reader.cpp"]
    assert changed_lines("--- a/x.h\n+++ b/x.h\n@@ -3,0 +4,2 @@ f\n+a\n+b\n@@ -9 +11 @@\n-c\n+d\n@@ -20,2 +21,0 @@\n") == {
        "x.h": {4, 5, 11}}


def main():
    parser = argparse.ArgumentParser(usage="tools/tidy [--deep [--base COMMIT] [--seconds N] [--build FOLDER]] [--fix]")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--base")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args()
    self_test()
    paths = tracked_files()
    problems = []
    for path in paths:
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            problems.append(f"{path}:1: not text; no binary belongs here")
            continue
        problems += check_file(path, text)
    problems += check_readmes(paths)
    problems += check_tour(paths)
    problems += check_named_tests()
    problems += check_format(paths, options.fix)
    if options.deep and shutil.which("clang-tidy-14"):
        problems += check_deep(options.base, options.seconds, options.build)
    elif options.deep:
        print("tidy: clang-tidy-14 is not installed, nothing was looked at with it")
    for problem in problems:
        print(problem)
    print(f"tidy: {len(paths)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

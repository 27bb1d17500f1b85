"""What tools/tidy holds. A rule enters with the fault that made us want it, one bad and one good example (self-tested)."""

import re

# Habit: an include points only to the listed rooms (docs/tour.md has the map). The longest matching room counts.
MAY_INCLUDE = {
    "transport/base": [],
    "transport/kafka": ["transport/base"],
    "transport/kafka/net": ["transport/base", "transport/kafka"],
    "transport/rdma": ["transport/base"],
    # The registry is the one file that names them all.
    "transport/rdma/providers.cpp": ["transport/base", "transport/rdma", "transport/rdma/memory", "transport/rdma/shm",
                                     "transport/rdma/verbs", "transport/rdma/ofi", "transport/rdma/ucx"],
    "transport/rdma/memory": ["transport/base", "transport/rdma"],
    "transport/rdma/shm": ["transport/base", "transport/rdma"],
    "transport/rdma/verbs": ["transport/base", "transport/rdma"],
    "transport/rdma/ofi": ["transport/base", "transport/rdma"],
    "transport/rdma/ucx": ["transport/base", "transport/rdma"],
    "transport/device": ["transport/base", "transport/kafka"],
    "transport/onesided": ["transport/base", "transport/device", "transport/kafka", "transport/rdma"],
    "broker/log": ["transport/base", "transport/kafka"],
    "broker/settings": ["transport/base", "broker/log"],
    "broker/metadata": ["broker/settings", "transport/base", "transport/kafka", "broker/log"],
    "broker/security": ["broker/settings", "transport/base", "transport/kafka", "broker/log", "broker/metadata"],
    "broker/exposure": ["transport", "broker/settings", "broker/log", "broker/metadata", "broker/security"],
    "broker/group": ["broker/settings", "transport/base", "transport/kafka", "broker/log", "broker/metadata", "broker/security"],
    "broker/api": ["transport", "broker"],
    "broker/ops": ["transport", "broker"],
    "broker": ["transport", "broker"],
    "client/include": [],
    "client/core": ["transport", "client/include"],
    "client/c": ["client/core", "client/include", "transport/base"],
    "client/python": ["client/include"],
    "tests/suites": ["client/include"],
    "bench": ["client/include", "transport", "broker"],
    "tests": ["transport", "broker", "client", "tests", "tools", "bench"],
    "tools": ["transport", "broker", "client", "tools"],
    "docs": ["client/include"],
}
# Below broker/, these are the shared headers of the top that rooms under it may use: plain values, no sockets.
BROKER_ROOMS_MAY_USE_TOP = ()

PRODUCTION = re.compile(r"^(transport|broker|client)/")
CPP = re.compile(r"\.(h|hpp|cpp|cc|c)$")
# clang-format takes any file for C++: a "# comment" of Markdown or CMake comes back as "#comment", words apart.
FORMATTED_BY_MISTAKE = re.compile(r"^#[A-Za-z]")
HASH_COMMENTS = re.compile(r"(\.md|\.cmake|CMakeLists\.txt)$")

# name: (where, pattern, what instead, bad example, good example)
BANNED = {
    "remote-write": (
        # A client's landing over iWARP is the sink of its own READs, which that protocol wants open.
        re.compile(r"^(transport|broker|client)/(?!rdma/verbs/endpoint\.cpp)"),
        re.compile(r"IBV_ACCESS_(REMOTE_WRITE|REMOTE_ATOMIC)"),
        "exposed memory is read-only (design, promise 5); register with IBV_ACCESS_REMOTE_READ alone",
        "ibv_reg_mr(pd, p, n, IBV_ACCESS_REMOTE_WRITE)", "ibv_reg_mr(pd, p, n, IBV_ACCESS_REMOTE_READ)"),
    "clock": (
        re.compile(r"^(broker|transport|client/core)/(?!base/clock\.cpp)"),
        re.compile(r"\b(system_clock|steady_clock|high_resolution_clock)::now\b"),
        "use ciuic::Clock: the simulation owns the time",
        "auto t = std::chrono::steady_clock::now();", "auto t = clock.now();"),
    "catch-all": (
        re.compile(r"^(transport|broker/(log|metadata|exposure|group|security)|client/core)/"), re.compile(r"catch\s*\(\s*\.\.\.\s*\)"),
        "use a result; exceptions are for bugs and start-up (the C ABI and the dispatcher are the two nets)",
        "} catch (...) {", "} catch (const spdlog::spdlog_ex&) {"),
    "wrapping-sum": (
        PRODUCTION, re.compile(r"\b(offset|at|position|pos)\s*\+\s*(length|len|size|n|count)\s*>\s*\w*(size|length|capacity)"),
        "the sum can wrap; write `n > length - at` after `at <= length`",
        "if (offset + length > size) return;", "if (at > size || n > size - at) return;"),
    "unfinished": (
        re.compile(r"^(transport|broker|client|tools|tests|bench)/(?!tidy\.d/)"),
        re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"),
        "finish it, or say in docs/ what is deliberately missing",
        "// TODO: later", "// Deliberately missing: X, because Y."),
    "stdout": (
        PRODUCTION, re.compile(r"\b(std::cout|std::cerr|printf\s*\()"),
        "use ciuic::log; only programs print",
        'std::cout << "x";', 'log::info("log", "x");'),
}
# main.cpp files print their --help and --version; the C example of the public header's comment prints.
MAY_PRINT = re.compile(r"(main\.cpp$|^client/python/|\.py$)")

LINES_MAX = 800
LINES_EXPLAIN = 600

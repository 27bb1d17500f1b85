"""What was measured on, and with what: stored with every result, compared by `compare`."""

import os
import pathlib
import platform
import re
import subprocess

import paths


def _first(path, pattern, default="?"):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        return default
    return found.group(1).strip() if found else default


def _said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=paths.ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine():
    return {
        "cpu": _first("/proc/cpuinfo", r"^model name\s*:\s*(.*)$"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(_first("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0")) / 2 ** 20, 1),
        "kernel": platform.release(),
        "huge_pages_shmem": _first("/sys/kernel/mm/transparent_hugepage/shmem_enabled", r"\[(\w+)\]"),
        "locked_memory_limit": _first("/proc/self/limits", r"^Max locked memory\s+(\S+)"),
        "governor": _first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", r"(\w+)"),
        "network": "loopback",
    }


def versions(build):
    commit = _said("git", "rev-parse", "--short", "HEAD")
    changed = bool(_said("git", "status", "--porcelain", "--untracked-files=no"))
    return {
        "ciuic": _said(str(build / "bin" / "ciuic-broker"), "--version"),
        "commit": commit + ("+changes" if commit and changed else ""),
        "client": _said(str(build / "bench" / "bench_client"), "version"),
        "librdkafka": _said(str(build / "bench" / "bench_librdkafka"), "version"),
        "apache_kafka": _first(paths.ROOT / "tools" / "peers" / "versions.env", r"^KAFKA_VERSION=(\S+)"),
        "hadoop": _first(paths.ROOT / "tools" / "peers" / "versions.env", r"^HADOOP_VERSION=(\S+)"),
        "flume": _first(paths.ROOT / "tools" / "peers" / "versions.env", r"^FLUME_VERSION=(\S+)"),
        "java": _first("/usr/lib/jvm/java-17-openjdk-amd64/release", r'^JAVA_VERSION="([^"]+)"'),
        "python": platform.python_version(),
    }


def load():
    """Others' work on this machine in the last minute, in cores; it is in every figure."""
    return round(os.getloadavg()[0], 2)


def in_words(about):
    return (f"{about['cores']} cores ({about['cpu']}), {about['memory_gib']} GiB, Linux {about['kernel']}, {about['network']}, "
            f"huge pages for shared memory: {about['huge_pages_shmem']}")

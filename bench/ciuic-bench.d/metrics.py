"""The metrics that several benchmarks share, and how they follow from a driver's line."""

from declare import LESS, MORE, TOLD, Metric

MB_S = Metric("mb_s", "throughput", "MB/s", MORE, "bytes of record values a second, as the client has them")
RECORDS_S = Metric("records_s", "records", "1/s", MORE, "records a second")
MB_CPU = Metric("mb_cpu_s", "per CPU second", "MB", MORE, "throughput a second of CPU, of client and broker together")
MB_BROKER_CPU = Metric("mb_broker_cpu_s", "per broker CPU second", "MB", MORE, "throughput a second of CPU, of the broker's process alone")
BROKER_CPU = Metric("broker_cpu_s_gb", "broker CPU", "s/GB", LESS, "user and system time of the broker's process, a GB")
CLIENT_CPU = Metric("client_cpu_s_gb", "client CPU", "s/GB", LESS, "user and system time of the client's process, a GB")
BROKER_SWITCHES = Metric("broker_switches_gb", "broker context switches", "1/GB", TOLD, "voluntary and not, of its living threads")
CLIENT_SWITCHES = Metric("client_switches_gb", "client context switches", "1/GB", TOLD, "voluntary and not")
BROKER_SYSCALLS = Metric("broker_syscalls_gb", "broker system calls", "1/GB", TOLD, "by perf, in a round of their own that is not timed")
CLIENT_SYSCALLS = Metric("client_syscalls_gb", "client system calls", "1/GB", TOLD, "by perf, the client's start included")
BROKER_RESIDENT = Metric("broker_resident_mib", "broker resident", "MiB", TOLD, "VmRSS, with what it holds of the log")
BROKER_ANONYMOUS = Metric("broker_anonymous_mib", "broker heap", "MiB", LESS, "RssAnon: heap and stacks")
BROKER_REGISTERED = Metric("broker_registered_mib", "broker registered", "MiB", TOLD, "memory that readers may read one-sidedly")
CLIENT_RESIDENT = Metric("client_resident_mib", "client resident", "MiB", TOLD, "VmRSS, with what it maps of the broker's memory")

COSTS = (BROKER_CPU, CLIENT_CPU, MB_CPU, MB_BROKER_CPU, BROKER_SWITCHES, CLIENT_SWITCHES, BROKER_SYSCALLS, CLIENT_SYSCALLS,
         BROKER_RESIDENT, BROKER_ANONYMOUS, BROKER_REGISTERED, CLIENT_RESIDENT)
TINY_CPU_S = 1e-6  # below what the clocks tell


def of_transfer(line):
    """From one line of `bench_client produce` or `consume`."""
    gb = line["bytes"] / 1e9
    broker, client = line["broker"], line["client"]
    return {
        MB_S.name: gb * 1000 / line["seconds"],
        RECORDS_S.name: line["records"] / line["seconds"],
        BROKER_CPU.name: broker["cpu_seconds"] / gb,
        CLIENT_CPU.name: client["cpu_seconds"] / gb,
        MB_CPU.name: gb * 1000 / max(broker["cpu_seconds"] + client["cpu_seconds"], TINY_CPU_S),
        MB_BROKER_CPU.name: gb * 1000 / max(broker["cpu_seconds"], TINY_CPU_S),
        BROKER_SWITCHES.name: (broker["voluntary"] + broker["involuntary"]) / gb,
        CLIENT_SWITCHES.name: (client["voluntary"] + client["involuntary"]) / gb,
        BROKER_RESIDENT.name: broker["resident_mib"],
        BROKER_ANONYMOUS.name: broker["anonymous_mib"],
        BROKER_REGISTERED.name: broker["registered_mib"],
        CLIENT_RESIDENT.name: client["resident_mib"],
    }


def of_limit(line):
    """From one line of `bench_limits`; its broker is who sends, its client who reads."""
    gb = line["bytes"] / 1e9
    cpu = line["cpu_seconds"] + line["sender_cpu_seconds"]
    out = {MB_S.name: gb * 1000 / line["seconds"], CLIENT_CPU.name: line["cpu_seconds"] / gb, MB_CPU.name: gb * 1000 / max(cpu, TINY_CPU_S)}
    if line["sender_cpu_seconds"]:
        out |= {BROKER_CPU.name: line["sender_cpu_seconds"] / gb, MB_BROKER_CPU.name: gb * 1000 / line["sender_cpu_seconds"]}
    return out


def detail_of(line):
    return {key: line[key] for key in ("path", "library") if line.get(key)}

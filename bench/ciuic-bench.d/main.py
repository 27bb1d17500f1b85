"""ciuic-bench: see the head of that script, and bench/README.md."""

import argparse
import datetime
import pathlib
import signal
import subprocess
import sys

import announcement
import compare
import figures
import html_report
import paths
import png
import registry
import results
import runner
import settings_table
import svg
import text_report
from world import Failed, Interrupted, World, brokers

ROUNDS, ROUNDS_QUICK = 5, 1


def list_command(options):
    if options.settings:
        print(settings_table.markdown())
        return 0
    for benchmark in registry.BENCHMARKS:
        print(f"{benchmark.name:20} {benchmark.question}")
        if options.long:
            print(f"{'':20} {benchmark.workload}")
            print(f"{'':20} {benchmark.axis.title}: {', '.join(point.label for point in benchmark.axis.points)}; about {benchmark.seconds // 60 or 1} min")
            for contender in benchmark.contenders:
                print(f"{'':20}   {contender.kind} {contender.name}: {contender.what}")
            print()
    print("\nWith commands of their own:")
    for command, what in registry.BESIDE:
        print(f"{command:26} {what}")
    return 0


def end_by_signal(world):
    """From now on SIGINT and SIGTERM end the world's run."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: world.end(f"ended by {signal.Signals(number).name}"))


def run_command(options):
    benchmarks = registry.chosen(options.names)
    without = set(filter(None, ",".join(options.without).split(",")))
    if any(one.broker == "hdfs-flume" for _, some, _ in runner.plan(benchmarks, without, options.quick) for one in some) and not brokers.HdfsFlume.installed():
        print("HDFS with Flume is not here and is left out: `tools/peers/setup hdfs-flume` brings it", file=sys.stderr)
        without.add("hdfs-flume")
    baseline = results.load(options.baseline) if options.baseline else None  # before hours of work, not after
    planned = runner.plan(benchmarks, without, options.quick)
    if not planned:
        sys.exit(f"--without {','.join(sorted(without))}: nothing is left to measure")
    if any(contender.broker == "apache" for _, contenders, _ in planned for contender in contenders):
        if subprocess.run([paths.ROOT / "tools" / "peers" / "setup", "kafka"], check=False).returncode != 0:
            sys.exit("Apache Kafka is not here and could not be brought; --without apache measures the rest")
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    out = pathlib.Path(options.out or paths.RESULTS / f"{stamp}.json")
    rounds = options.rounds or (ROUNDS_QUICK if options.quick else ROUNDS)
    status = 0
    try:
        with World(options.build, options.folder) as world:
            end_by_signal(world)
            work = runner.Runner(world, out, rounds, options.quick, without, not options.quick and not options.no_counts, {"names": options.names})
            report = work.run(benchmarks)
    except Interrupted as error:
        print(f"{error}; {f'what was measured is in {out}' if out.exists() else 'nothing was measured'}", file=sys.stderr)
        return 130 if "INT" in str(error) else 143
    print(text_report.text(report))
    print(f"\nresult: {out}")
    if report["failures"]:
        status = 2
    if baseline:
        told, worse = compare.told(baseline, report, options.tolerance)
        print(f"\nagainst {options.baseline}:\n{told}")
        status = status or int(worse)
    return status


def compare_command(options):
    told, worse = compare.told(results.load(options.before), results.load(options.after), options.tolerance)
    print(told)
    return int(worse)


def newest():
    """What `run` wrote last without --out."""
    found = sorted(paths.RESULTS.glob("*.json"))
    if not found:
        raise results.Unreadable("no result yet; `ciuic-bench run all` makes one, or name a file")
    return found[-1]


def report_command(options):
    if options.what == "announcement":
        files = options.more or [newest()]
        print(announcement.text([results.load(path) for path in files]))
        return 0
    if options.more:
        sys.exit(f"{options.more[0]}: one result at a time; `report announcement FILE…` takes several")
    report = results.load(options.what or newest())
    if options.html:
        pathlib.Path(options.html).write_text(html_report.page(report), encoding="utf-8")
    for folder, ending in ((options.svg, "svg"), (options.png, "png")):
        if not folder:
            continue
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures.of_report(report):
            path = folder / f"{figure.name}.{ending}"
            if ending == "svg":
                path.write_text(svg.standalone(figure), encoding="utf-8")
            else:
                png.save(figure, path, svg.colour)
    if not (options.html or options.svg or options.png):
        print(text_report.text(report))
    return 0


def whole(least):
    def parse(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: a whole number from {least}")
        return int(text)
    return parse


def tolerance_of(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text}: a share such as 0.05")
    return value


def arguments():
    parser = argparse.ArgumentParser(prog="ciuic-bench", description="What CiuicKafka does, against its peers and this machine's limits.")
    commands = parser.add_subparsers(required=True, metavar="list|run|compare|report")

    one = commands.add_parser("list", help="the benchmarks and the questions they answer")
    one.add_argument("--long", action="store_true", help="with workloads, peers and limits")
    one.add_argument("--settings", action="store_true", help="every setting that is not a default, and why, as Markdown")
    one.set_defaults(do=list_command)

    one = commands.add_parser("run", help="measure; exit code 1: worse than the baseline, 2: a benchmark failed")
    one.add_argument("names", nargs="+", metavar="NAME|all")
    one.add_argument("--rounds", type=whole(1), help=f"a figure is the median of so many (default {ROUNDS}, with --quick {ROUNDS_QUICK})")
    one.add_argument("--quick", action="store_true", help="little data and few points, to see that it works")
    one.add_argument("--out", metavar="FILE.json", help="default: a new file in build/bench-results")
    one.add_argument("--baseline", metavar="FILE.json", help="name what is worse than there")
    one.add_argument("--tolerance", type=tolerance_of, default=compare.TOLERANCE, help="a change below this share is none (default %(default)s)")
    one.add_argument("--without", action="append", default=[], metavar="WHO[,WHO]", help="leave out apache, librdkafka, hdfs-flume, limit, or a contender by its name")
    one.add_argument("--no-counts", action="store_true", help="no round that counts system calls")
    one.add_argument("--folder", help="where logs go, in a new folder that is removed (default: where temporary files go)")
    one.add_argument("--build", type=pathlib.Path, default=paths.BUILD, help=argparse.SUPPRESS)
    one.set_defaults(do=run_command)

    one = commands.add_parser("compare", help="two results; exit code 1: the second is worse somewhere")
    one.add_argument("before", metavar="A.json")
    one.add_argument("after", metavar="B.json")
    one.add_argument("--tolerance", type=tolerance_of, default=compare.TOLERANCE, help="a change below this share is none (default %(default)s)")
    one.set_defaults(do=compare_command)

    one = commands.add_parser("report", help="a result for people: on the terminal, as a page, as plots")
    one.add_argument("what", nargs="?", metavar="FILE.json|announcement", help="default: the newest result; `announcement`: the announcement's table")
    one.add_argument("more", nargs="*", metavar="FILE.json", help="results for the announcement's table")
    one.add_argument("--html", metavar="OUT", help="one page that needs nothing else")
    one.add_argument("--svg", metavar="FOLDER", help="every plot as a file")
    one.add_argument("--png", metavar="FOLDER", help="the same by matplotlib")
    one.set_defaults(do=report_command)
    return parser


def main():
    options = arguments().parse_args()
    try:
        return options.do(options)
    except (registry.Unknown, results.Unreadable, png.Missing, Failed, OSError) as error:
        print(f"ciuic-bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

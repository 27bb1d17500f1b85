#!/usr/bin/env python3
"""What ciuic-bench computes, declares, writes and shows."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

import support
from support import BUILD, PROGRAM, ROOT, Still, benchmark, report, rounds

import announcement
import bars
import compare
import counted
import figures
import histogram
import html_report
import progress
import registry
import results
import runner
import settings_table
import stats
import svg
import text_report
import world

# By HdrHistogram's Java library, 2.2.2: what latency_histogram_test.cpp records, too.
JAVA = ("HISTFAAAAZd4nEWQQUtVQRiGz3neEREJiWgR6MKFqzaBK1ctgla17hf0C/oJKuJCIi4hEWIiIhe5RISYiIiIXERE5CKOSIiIxEVERSRELvWeOYozi/l4+eaZb57uocqTLONNVi7dnbnL1y9+fcteXtwlMZCWi4xiy7uNthjaaaeDTh7RxeMYnvKMHnrp4zn9"
        "MQzwire84z0fGM5jGM+p5dRzjnOGYQ52iWFErIgbMQ1b0IJ5xXApNmANrqAqTuQihmVowoQ4EF/FPBw5rYgtsS5qsAejYtWEMzED2/APFsS1WHJvHa79tGiKP7ACp06nxG/xSSwURMbFjglLibgPY2ItzTDj3h0YFIvir/hBMeWN05o4NQRW4QymxaEJo4l4Al9Ew+3FjRgO"
        "EnFD7IsqNApgeq0lZhPxFr6Lc6eNJOEcZsWRir8smuDJ/f1dFWo8wyF8dO+m2FapFVtdLqzGYK2bSetPUVpdN+HyQSv3VmPwQBNJq4ml1brTuQetnqm0GkPrXquvl1ar7rXWZiJawmSyWnFq4jF8Fv8BgL6i3Q==")
OURS, THEIRS = 'ours <&">', "theirs"


class MediansAndSpread(unittest.TestCase):
    def test_the_median_of_the_rounds_with_what_they_went_from_and_to(self):
        found = stats.summarize([5, 1, 3, 100, 2])
        self.assertEqual(dataclasses.astuple(found), (3, 1, 100, 5))
        self.assertEqual(stats.summarize([2, 4]).median, 3)
        self.assertAlmostEqual(stats.summarize([90, 100, 110]).spread, 0.1)
        self.assertEqual(stats.summarize([0, 0]).spread, 0)

    def test_a_metric_that_some_rounds_lack_is_that_of_the_others(self):
        found = stats.summaries([{"a": 1, "b": 2}, {"a": 3}])
        self.assertEqual((found["a"].rounds, found["b"].rounds, found["b"].median), (2, 1, 2))

    def test_better_is_what_the_metric_says(self):
        low, high = stats.summarize([100]), stats.summarize([150])
        self.assertAlmostEqual(stats.changed(low, high, "more"), 0.5)
        self.assertAlmostEqual(stats.changed(low, high, "less"), -0.5)
        self.assertEqual(stats.changed(stats.summarize([0]), high, "less"), float("-inf"))
        self.assertEqual(stats.changed(stats.summarize([0]), stats.summarize([0]), "less"), 0)


class Histograms(unittest.TestCase):
    def test_what_the_java_library_wrote_is_read_as_it_reads_it(self):
        found = histogram.Histogram.decode(JAVA)
        self.assertEqual(found.total(), 8871)
        self.assertEqual(found.at(10, 50, 90, 99, 99.9, 100), [29, 2437119, 181328150527, 1175747297279, 1175747297279, 1754494140415])

    def test_rounds_add_up(self):
        found = histogram.merged([JAVA, JAVA])
        self.assertEqual(found.total(), 2 * 8871)
        self.assertEqual(found.at(50), [2437119])

    def test_something_else_is_refused_by_its_first_word(self):
        with self.assertRaisesRegex(ValueError, "not an HdrHistogram"):
            histogram.Histogram.decode("AAAAAAAAAAAAAAAA")


class Regressions(unittest.TestCase):
    def told(self, before, after, **more):
        return compare.told(report({"one": before}), report({"one": after}), **more)

    def test_what_got_worse_is_named_with_the_metric_both_figures_and_the_spread(self):
        text, worse = self.told({OURS: rounds(100, 101, 102)}, {OURS: rounds(49, 50, 51)})
        self.assertTrue(worse)
        line = next(line for line in text.splitlines() if "still / one" in line)
        for part in (OURS, "throughput", "101 → 50.0 MB/s", "50.5% worse", "100…102 → 49.0…51.0"):
            self.assertIn(part, line)

    def test_a_rise_is_worse_where_less_is_better_and_better_where_more_is(self):
        for metric, expected in (("cpu_s", "worse"), ("mb_s", "better")):
            (one,) = compare.differences(report({"one": {OURS: rounds(10, 11, metric=metric)}}), report({"one": {OURS: rounds(20, 21, metric=metric)}}))
            self.assertEqual(one.verdict, expected, metric)

    def test_within_the_other_rounds_spread_nothing_is_worse(self):
        text, worse = self.told({OURS: rounds(60, 100, 110)}, {OURS: rounds(50, 61, 105)})
        self.assertFalse(worse)
        self.assertIn("1 figures compared: 0 worse, 0 better, 1 the same", text)

    def test_within_the_tolerance_nothing_is_worse_however_narrow_the_spread(self):
        self.assertFalse(self.told({OURS: rounds(100, 100)}, {OURS: rounds(96, 96)})[1])
        self.assertTrue(self.told({OURS: rounds(100, 100)}, {OURS: rounds(96, 96)}, tolerance=0.01)[1])

    def test_a_limit_that_moved_is_the_machine_and_no_regression(self):
        text, worse = self.told({"memory": rounds(100, 100)}, {"memory": rounds(50, 50)})
        self.assertFalse(worse)
        self.assertIn("the machine itself moved: still / one / memory 100 → 50.0 MB/s", text)

    def test_a_figure_that_is_only_told_is_never_judged(self):
        self.assertIn("nothing to compare", self.told({OURS: rounds(1, metric="memory")}, {OURS: rounds(9, metric="memory")})[0])

    def test_what_only_one_of_them_has_is_not_compared(self):
        self.assertIn("nothing to compare", self.told({OURS: rounds(1)}, {THEIRS: rounds(1)})[0])

    def test_different_machines_and_incomplete_results_are_said(self):
        before, after = report({"one": {OURS: rounds(1)}}), report({"one": {OURS: rounds(1)}}, complete=False, why="ended by SIGINT")
        after["machine"]["kernel"] = "7.0"
        after["options"]["rounds"] = 1
        text, _ = compare.told(before, after)
        for part in ("kernel 6.1 → 7.0", "the second result is not complete: ended by SIGINT", "1 round(s)"):
            self.assertIn(part, text)


class Declarations(unittest.TestCase):
    def test_each_names_itself_its_metrics_points_and_contenders_once(self):
        names = [one.name for one in registry.BENCHMARKS]
        self.assertEqual(len(names), len(set(names)))
        for one in registry.BENCHMARKS:
            for list_of in (one.metrics, one.contenders):
                some = [each.name for each in list_of]
                self.assertEqual(len(some), len(set(some)), one.name)
            labels = [point.label for point in one.axis.points]
            self.assertEqual(len(labels), len(set(labels)), one.name)
            self.assertTrue(one.question.endswith("?") and one.workload.endswith("."), one.name)
            self.assertTrue(one.points(quick=True), f"{one.name}: --quick measures nothing")
            self.assertTrue(any(each.kind == "peer" for each in one.contenders), one.name)
            self.assertTrue(one.plots, one.name)

    def test_plots_promises_and_the_announcement_name_what_is_measured(self):
        known = {one.name: one for one in registry.BENCHMARKS}
        for one in registry.BENCHMARKS:
            for plot in one.plots:
                self.assertIn(plot.metric, [metric.name for metric in one.metrics], one.name)
        asked = [(bar.benchmark, name, bar.metric, (*bar.points, *filter(None, [bar.base])))
                 for bar in bars.BARS for name in (bar.contender, bar.other, bar.limit) if name]
        asked += [(figure.benchmark, figure.contender, figure.metric, () if figure.point == "best" else (figure.point,))
                  for row in announcement.ROWS for figure in (*row.ours, *row.apache, *row.third)]
        for name, contender, metric, points in asked:
            one = known[name]
            self.assertIn(contender, [each.name for each in one.contenders], name)
            self.assertIn(metric, [each.name for each in one.metrics], name)
            for point in points:
                self.assertIn(point, [each.label for each in one.axis.points], name)

    def test_every_setting_has_its_reason_and_stands_in_the_readme(self):
        for one in registry.BENCHMARKS:
            for setting in one.settings():
                self.assertGreater(len(setting.reason), 5, setting)
        path = ROOT / "bench" / "README.md"
        readme, table = path.read_text(encoding="utf-8"), settings_table.markdown()
        there = re.search(r"^\| given to \|.*?(?=\n\n)", readme, re.M | re.S)
        if os.environ.get("CIUIC_WRITE_DOCS"):
            path.write_text(readme[:there.start()] + table + readme[there.end():], encoding="utf-8")
            return
        self.assertTrue(there and there.group() == table, "bench/README.md is behind the declarations: CIUIC_WRITE_DOCS=1 python3 tests/bench/framework_test.py writes its table")

    def test_a_name_that_no_benchmark_has_is_refused_with_those_there_are(self):
        with self.assertRaisesRegex(registry.Unknown, "nonsense: no such benchmark.*consume-hot"):
            registry.chosen(["nonsense"])
        self.assertEqual(registry.chosen(["all"]), registry.BENCHMARKS)
        self.assertEqual(len(registry.chosen(["idle", "idle"])), 1)

    def test_leaving_out_takes_brokers_drivers_limits_and_names(self):
        one = benchmark()
        for without, left in (({"apache"}, ["memory", OURS]), ({"limit"}, [OURS, THEIRS]), ({THEIRS}, ["memory", OURS])):
            ((_, contenders, points),) = runner.plan([one], without, quick=True)
            self.assertEqual(([each.name for each in contenders], [point.label for point in points]), (left, ["one"]))
        self.assertEqual(runner.plan([one], {"ours", "apache"}, quick=False), [])
        flume = next(each for each in registry.BENCHMARKS if each.name == "hdfs-flume")
        ((_, contenders, _),) = runner.plan([flume], {"hdfs-flume"}, quick=True)
        self.assertEqual([each.name for each in contenders], ["one-sided", "tcp"])


class NoWorld:
    """For workloads that start nothing."""

    build, counts_syscalls = BUILD, True


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "result.json"
        self.addCleanup(setattr, Still, "fails", None)
        self.addCleanup(setattr, Still, "ends", None)
        Still.order = []

    def run_of(self, *some, quick=True, count=2, counting=False, without=frozenset()):
        work = runner.Runner(NoWorld(), self.out, count, quick, set(without), counting, {})
        with contextlib.redirect_stderr(io.StringIO()):
            work.run(some)
        return results.load(self.out)

    def test_rounds_are_interleaved_and_the_warm_up_is_not_counted(self):
        found = self.run_of(benchmark())
        self.assertEqual(Still.order, ["open", "prepare one"] + ["memory", OURS, THEIRS] * 3 + ["close"])
        place = found["benchmarks"][0]["points"][0]["contenders"][OURS]
        self.assertEqual([sample["mb_s"] for sample in place["samples"]], [200, 300])
        self.assertEqual(place["summary"]["mb_s"], {"median": 250, "low": 200, "high": 300, "rounds": 2})
        self.assertTrue(found["complete"])

    def test_system_calls_are_counted_in_a_round_of_their_own(self):
        found = self.run_of(benchmark(), counting=True)
        self.assertEqual(Still.order[-4:], ["count memory", f"count {OURS}", f"count {THEIRS}", "close"])
        place = found["benchmarks"][0]["points"][0]["contenders"][OURS]
        self.assertEqual((len(place["samples"]), place["summary"]["memory"]["median"]), (2, 7))

    def test_a_benchmark_that_fails_is_named_and_the_others_are_measured(self):
        Still.fails = (OURS, 2)
        found = self.run_of(benchmark("bad"), benchmark("good"))
        self.assertFalse(found["complete"])
        self.assertEqual(found["failures"], [{"benchmark": "bad", "why": "RuntimeError: the driver ended with status 1"}])
        self.assertEqual(len(found["benchmarks"][1]["points"][0]["contenders"][OURS]["samples"]), 2)
        self.assertIn("FAILED bad: RuntimeError: the driver ended with status 1", text_report.text(found))

    def test_an_interrupted_run_leaves_what_it_measured_and_says_so(self):
        Still.ends = (("theirs", 3), world.Interrupted("ended by SIGINT"))
        work = runner.Runner(NoWorld(), self.out, 2, False, set(), False, {})
        with self.assertRaises(world.Interrupted), contextlib.redirect_stderr(io.StringIO()):
            work.run([benchmark()])
        found = results.load(self.out)
        self.assertEqual((found["complete"], found["why"]), (False, "ended by SIGINT"))
        self.assertEqual(len(found["benchmarks"][0]["points"][0]["contenders"][OURS]["samples"]), 2)
        self.assertEqual(Still.order[-1], "close")
        self.assertIn("not complete: ended by SIGINT", text_report.text(found))
        xml_of(html_report.page(found))

    def test_the_file_is_whole_at_every_moment_and_nothing_is_left_beside_it(self):
        results.save({"a": 1}, self.out)
        with self.assertRaises(TypeError):
            results.save({"a": object()}, self.out)
        self.assertEqual(json.loads(self.out.read_text()), {"a": 1})
        self.assertEqual(list(self.folder.iterdir()), [self.out])

    def test_a_benchmark_without_a_peer_left_is_not_run(self):
        found = self.run_of(benchmark(), without={"ours", "apache"})
        self.assertEqual((found["benchmarks"], Still.order), ([], []))


class OnATerminal(io.StringIO):
    def isatty(self):
        return True


class Progress(unittest.TestCase):
    def test_one_line_on_a_terminal_and_a_line_a_point_elsewhere(self):
        for stream, lines in ((OnATerminal(), 0), (io.StringIO(), 2)):
            shown = progress.Progress(4, stream)
            for place, what in (("a 1", "warm-up, x"), ("a 1", "round 1, x"), ("a 2", "warm-up, x"), ("a 2", "round 1, x")):
                shown.step(place, what)
            shown.end()
            self.assertEqual(stream.getvalue().count("\n"), lines)
            self.assertEqual("\x1b" in stream.getvalue(), lines == 0)
        self.assertEqual(stream.getvalue(), "==> a 1 (0/4)\n==> a 2 (2/4)\n")


def xml_of(page):
    return xml.fromstring(page.removeprefix("<!doctype html>"))


class Reports(unittest.TestCase):
    FULL = {"one": {"memory": rounds(1000, 1010), OURS: [{"mb_s": 100, "cpu_s": 1, "histogram": JAVA}, {"mb_s": 120, "cpu_s": 2, "histogram": JAVA}], THEIRS: rounds(0.5, 0.7)},
            "two": {"memory": rounds(1000), OURS: rounds(300, 310), THEIRS: rounds(50)}}

    def test_the_page_is_well_formed_and_has_everything_in_it(self):
        page = html_report.page(report(self.FULL))
        tree = xml_of(page)
        self.assertEqual(len(tree.findall(".//svg")), 3)  # two plots, and the percentiles of a point
        text = " ".join("".join(each.itertext()) for each in tree.iter("td"))
        for part in (OURS, "110 ±9%", "because 1 < 2", "k=v & w"):
            self.assertIn(part, text)

    def test_the_page_refers_to_nothing_outside(self):
        page = html_report.page(report(self.FULL))
        self.assertIsNone(re.search(r"""https?:|//|url\(|@import|<script|<link|<img|\bsrc=|srcset""", page))
        self.assertEqual(set(re.findall(r'href="(.)', page)), {"#"})
        for style in ("prefers-color-scheme:dark", "color-scheme:light dark"):
            self.assertIn(style, page)

    def test_what_was_not_measured_leaves_no_hole(self):
        empty = {"memory": [], OURS: [], THEIRS: []}
        for samples in ({}, {"one": empty}, {"one": {OURS: rounds(0, 0), THEIRS: rounds(0)}}, {"one": {OURS: rounds(3)}, "two": empty}):
            found = report(samples)
            xml_of(html_report.page(found))
            self.assertIn("still: Why?", text_report.text(found))

    def test_a_plot_is_a_file_of_its_own(self):
        for figure in figures.of_report(report(self.FULL)):
            tree = xml.fromstring(svg.standalone(figure))
            self.assertEqual(tree.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertRegex(figure.name, r"^[\w.-]+$")

    def test_a_contender_has_one_colour_in_all_plots(self):
        found = figures.of_report(report(self.FULL))
        colours = {(series.name, svg.colour(series)) for figure in found for series in figure.series}
        self.assertEqual(len(colours), 3)

    def test_ticks_are_round_and_enclose_what_is_drawn(self):
        for low, high, logarithmic in ((0, 7, False), (0, 0, False), (0.003, 0.02, True), (1, 1, True), (0, 1e9, False), (0, 0.37, False)):
            marks = svg.ticks(low, high, logarithmic)
            self.assertTrue(marks[0] <= low and marks[-1] >= high and 2 <= len(marks) <= 12, (low, high, marks))

    def test_the_promises_say_what_holds_and_what_was_not_measured(self):
        one = next(each for each in registry.BENCHMARKS if each.name == "consume-hot")
        found = report({"1 KiB": {"memcpy": rounds(100), "one-sided": rounds(120), "one-sided, copied": rounds(20)}}, one)
        rows = {row[0]: row[1:] for row in bars.table(found)[1]}
        self.assertEqual(rows["one-sided read, views, over memcpy"], ["at least 1", "1.20 (1 KiB)", "", "holds"])
        self.assertEqual(rows["one-sided read, copied out, over memcpy"], ["at least 0.5", "0.2 (1 KiB)", "", "missed"])
        self.assertEqual(rows["TCP Fetch over a plain TCP stream, CRC checked"][-1], "not measured")

    def test_a_promise_tells_what_the_limit_reaches_at_the_same_point(self):
        what, metric = "one-sided over Apache's TCP consumer, throughput a CPU second", "mb_cpu_s"
        one = next(each for each in registry.BENCHMARKS if each.name == "consume-hot")
        sides = lambda ours, theirs, limit: {"one-sided": [{metric: ours}], "librdkafka, Apache": [{metric: theirs}], "crc32c": [{metric: limit}]}
        found = report({"1 KiB": sides(300, 10, 400), "64 KiB": sides(50, 10, 70)}, one)
        self.assertEqual({row[0]: row[1:] for row in bars.table(found)[1]}[what], ["at least 10", "5.00 (64 KiB)", "7.00: crc32c", "missed"])
        found = report({"64 KiB": {name: place for name, place in sides(50, 10, 70).items() if name != "crc32c"}}, one)
        self.assertEqual({row[0]: row[1:] for row in bars.table(found)[1]}[what][2], "")

    def test_a_promise_about_growth_is_over_the_contenders_own_smaller_point(self):
        one = next(each for each in registry.BENCHMARKS if each.name == "consume-partitions")
        found = report({"10": {"one-sided": rounds(100)}, "100": {"one-sided": rounds(10)}, "1,000": {"one-sided": rounds(90)}}, one)
        rows = {row[0]: row[1:] for row in bars.table(found)[1]}
        self.assertEqual(rows["one-sided read over 1,000 partitions, over that of 10"], ["at least 0.8", "0.9 (1,000)", "", "holds"])
        del found["benchmarks"][0]["points"][0]
        self.assertEqual({row[0]: row[1:] for row in bars.table(found)[1]}["one-sided read over 1,000 partitions, over that of 10"][-1], "not measured")

    def test_the_announcement_has_every_row_and_takes_the_newest_figure(self):
        one = next(each for each in registry.BENCHMARKS if each.name == "consume-hot")
        old = report({"1 KiB": {"one-sided": rounds(100), "librdkafka, Apache": rounds(40)}}, one)
        new = report({"1 KiB": {"one-sided": rounds(200)}, "100 B": {"one-sided": rounds(90)}}, one, date="2027-01-01T00:00:00+00:00")
        head, rows = announcement.table([old, new])
        self.assertEqual((len(head), len(rows)), (5, len(announcement.ROWS)))
        self.assertEqual(rows[0][2:], ["200 MB/s (1 KiB)", "40.0 MB/s (1 KiB)", "not measured"])
        self.assertEqual(rows[-1][2:], ["not measured"] * 3)
        flume = next(each for each in registry.BENCHMARKS if each.name == "hdfs-flume")
        beside = report({"1 KiB": {"HDFS with Flume": [{"read_mb_s": 300, "write_mb_s": 30}]}}, flume)
        self.assertEqual([row[4] for row in announcement.table([old, beside])[1]][:3], ["300 MB/s (1 KiB)", "30.0 MB/s (1 KiB)", "not measured"])
        self.assertEqual(len(announcement.text([])), len(announcement.text([])))
        self.assertEqual(len({line.count("|") for line in announcement.text([old]).splitlines()}), 1)


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def call(self, *words, python=sys.executable, **environment):
        return subprocess.run([python, "-B", PROGRAM / "main.py", *map(str, words)], capture_output=True, text=True, timeout=100, check=False,
                              env={**os.environ, **environment})

    def stored(self, name, samples):
        results.save(report(samples), self.folder / name)
        return self.folder / name

    def test_compare_ends_with_1_where_something_is_worse(self):
        good, bad = self.stored("a.json", {"one": {OURS: rounds(10, 11)}}), self.stored("b.json", {"one": {OURS: rounds(5, 6)}})
        for first, second, status in ((good, bad, 1), (bad, good, 0), (good, good, 0)):
            done = self.call("compare", first, second)
            self.assertEqual((done.returncode, done.stderr), (status, ""))

    def test_a_file_that_is_no_result_is_refused_by_name_with_the_remedy(self):
        (self.folder / "text.json").write_text("no")
        (self.folder / "other.json").write_text('{"format": 99}')
        for name, words in (("text.json", "not JSON"), ("other.json", "run it again"), ("missing.json", "No such file")):
            for command in (["report"], ["report", "announcement"], ["compare", self.folder / name]):
                done = self.call(*command, self.folder / name)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(name, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_bad_words_are_refused_before_anything_is_started(self):
        for words, said in ((["run", "nonsense"], "no such benchmark"), (["run", "idle", "--rounds", "0"], "a whole number from 1"), (["run", "idle", "--tolerance", "x"], "a share"),
                            (["run", "idle", "--baseline", self.folder / "none.json"], "No such file"), (["run", "idle", "--without", "ours,apache"], "nothing is left")):
            done = self.call(*words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_a_build_that_is_not_there_is_said_and_the_result_is_valid(self):
        out = self.folder / "out.json"
        done = self.call("run", "idle", "--quick", "--without", "apache", "--build", self.folder / "nowhere", "--out", out)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("ciuic-broker", results.load(out)["failures"][0]["why"])

    def test_a_peer_that_is_only_brought_where_asked_for_is_left_out_with_the_remedy(self):
        cache, out = self.folder / "cache", self.folder / "out.json"
        words = ["run", "hdfs-flume", "--quick", "--build", self.folder / "nowhere", "--out", out]
        done = self.call(*words, CIUIC_CACHE=str(cache))
        self.assertIn("`tools/peers/setup hdfs-flume` brings it", done.stderr)
        self.assertFalse(cache.exists())
        self.assertEqual(results.load(out)["options"]["without"], ["hdfs-flume"])
        self.assertEqual(list(results.load(out)["benchmarks"][0]["contenders"]), ["one-sided", "tcp"])
        # Whoever does not want it anyway hears nothing of it, and whoever asks for nothing else is not left with a run of nothing.
        self.assertNotIn("setup", self.call(*words, "--without", "hdfs-flume", CIUIC_CACHE=str(cache)).stderr)
        done = self.call(*words, "--without", "ours", CIUIC_CACHE=str(cache))
        self.assertIn("`tools/peers/setup hdfs-flume` brings it", done.stderr)
        self.assertIn("nothing is left to measure", done.stderr)
        for verb, said in (("start", "tools/peers/setup hdfs-flume brings them"), ("drive", "tools/peers/setup hdfs-flume brings them"), ("begin", "unknown 'begin'")):
            done = subprocess.run([ROOT / "tools" / "peers" / "hdfs-flume", verb, self.folder / "new"], capture_output=True, text=True, timeout=20, check=False,
                                  env={**os.environ, "CIUIC_CACHE": str(cache)})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)

    def test_a_place_that_cannot_be_written_is_said_before_anything_is_started(self):
        (self.folder / "file").write_text("")
        stored = self.stored("a.json", {})
        for words in (["run", "idle", "--quick", "--without", "apache", "--out", self.folder / "file" / "out.json"], ["run", "idle", "--without", "apache", "--folder", self.folder / "file"],
                      ["report", stored, "--html", self.folder / "no" / "page.html"]):
            done = self.call(*words)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(str(self.folder), done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertNotIn("==>", done.stderr)

    def test_list_names_every_benchmark_and_the_commands_beside(self):
        said = self.call("list").stdout + self.call("list", "--long").stdout
        for one in registry.BENCHMARKS:
            self.assertIn(f"{one.name} ", said)
        for command, _ in registry.BESIDE:
            self.assertIn(command, said)
            self.assertTrue((ROOT / command).exists(), command)

    def test_report_writes_what_was_asked_for(self):
        stored = self.stored("a.json", Reports.FULL)
        self.assertIn("still: Why?", self.call("report", stored).stdout)
        done = self.call("report", stored, "--html", self.folder / "page.html", "--svg", self.folder / "plots")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        xml_of((self.folder / "page.html").read_text(encoding="utf-8"))
        self.assertEqual(len(list((self.folder / "plots").glob("*.svg"))), 3)

    def test_plots_as_png(self):
        python = "/usr/bin/python3"  # Debian's, which sees python3-matplotlib
        if subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False).returncode != 0:
            self.skipTest("python3-matplotlib is not installed")
        single = self.stored("b.json", {"one": {OURS: rounds(10, 11), THEIRS: rounds(5)}})
        for name, stored, count in (("lines", self.stored("a.json", Reports.FULL), 3), ("bars", single, 1)):
            done = self.call("report", stored, "--png", self.folder / name, python=python)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            files = list((self.folder / name).glob("*.png"))
            self.assertEqual(len(files), count)
            self.assertTrue(all(file.read_bytes().startswith(b"\x89PNG") for file in files))


class Syscalls(unittest.TestCase):
    def test_perf_that_counted_nothing_is_said(self):
        with tempfile.NamedTemporaryFile("w", suffix=".perf") as file:
            file.write(f"1234,,{world.PERF_EVENT},100,100.00,,\n")
            file.flush()
            self.assertEqual(world._perf_count(pathlib.Path(file.name)), 1234)
            file.truncate(0)
            file.seek(0)
            file.write(f"<not counted>,,{world.PERF_EVENT},0,0,,\n")
            file.flush()
            with self.assertRaisesRegex(world.Failed, "perf counted nothing"):
                world._perf_count(pathlib.Path(file.name))


if __name__ == "__main__":
    counted.main()

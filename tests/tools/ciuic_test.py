#!/usr/bin/env python3
"""The command `ciuic` against a live broker: every subcommand plain and with --json, what it refuses and how, colours,
completions. CIUIC_BROKER is the broker, `ciuic` lies beside it (or CIUIC). Over 600 lines in one file, as the last test holds
all calls of this run against `ciuic --help`."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support
from support import CIUIC, ESCAPE, ROOT, Live, NotKafka, on_a_terminal, run

sys.path.insert(0, str(ROOT / "tests" / "unit" / "python"))
import counted  # noqa: E402

PARTITIONS = 2
# What each command needs to be a whole command line.
ARGUMENTS = {"topics create": ["new"], "topics delete": ["t"], "topics describe": ["t"], "topics alter": ["t", "-p", "3"],
             "groups describe": ["g"], "groups delete": ["g"], "groups reset-offsets": ["g", "-t", "t", "--to", "latest"],
             "configs describe": ["topic", "t"], "configs set": ["topic", "t", "retention.ms=1"],
             "configs delete": ["topic", "t", "retention.ms"], "offsets": ["t"], "produce": ["t"], "consume": ["t", "-e"],
             "log": ["."], "completions": ["bash"]}
LOCAL = ("log", "completions")  # talk to no broker
names = (f"t{number}" for number in itertools.count())


def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not (result := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {holds.__name__}")
        time.sleep(0.05)
    return result


class Ciuic(Live):
    settings = {"num.partitions": PARTITIONS, "auto.create.topics.enable": "false"}

    def setUp(self):
        self.topic = next(names)
        self.folder = tempfile.mkdtemp(prefix="ciuic-tool-")
        self.addCleanup(shutil.rmtree, self.folder)

    def filled(self, count=10, *options):
        """A topic with "0" … "count - 1" in its partition 0."""
        self.says("topics", "create", self.topic)
        self.says("produce", self.topic, "-p", "0", *options, given="".join(f"{number}\n" for number in range(count)))
        return self.topic

    def consumed(self, *options, **more):
        return self.says("consume", self.topic, "-e", *options, **more)

    @staticmethod
    def member(address, *words):
        return subprocess.Popen([CIUIC, "consume", *words, "-b", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Topics(Ciuic):
    def test_are_created_listed_described_grown_and_deleted(self):
        self.assertEqual(self.says("topics", "create", self.topic, "-p", "3", "-r", "1"), f"{self.topic}: created, 3 partitions, 1 replicas\n")
        (row,) = [row for row in self.rows("topics", "list") if row["TOPIC"] == self.topic]
        (fact,) = [one for one in self.facts("topics", "list") if one["topic"] == self.topic]
        self.assertEqual((row["PARTITIONS"], row["REPLICAS"], row["ID"]), ("3", "1", fact["id"]))
        self.assertEqual(fact, {"topic": self.topic, "partitions": 3, "replicas": 1, "id": row["ID"], "internal": False})
        self.assertEqual(len(row["ID"]), 22)
        self.assertEqual(self.says("topics", "alter", self.topic, "-p", "4", "--validate"), f"{self.topic}: could have 4 partitions\n")
        self.assertEqual(self.facts("topics", "alter", self.topic, "-p", "4", "--validate"), [{"topic": self.topic, "altered": False, "partitions": 4}])
        self.assertEqual(self.says("topics", "alter", self.topic, "-p", "4"), f"{self.topic}: now 4 partitions\n")
        self.assertEqual(self.facts("topics", "alter", self.topic, "-p", "5"), [{"topic": self.topic, "altered": True, "partitions": 5}])
        self.assertEqual(len(self.facts("topics", "describe", self.topic)[0]["partitions"]), 5)
        self.assertEqual(self.says("topics", "delete", self.topic), f"{self.topic}: deleted\n")
        self.assertNotIn(self.topic, [one["topic"] for one in self.facts("topics", "list")])

    def test_json_of_create_and_delete_says_what_was_done(self):
        made = self.facts("topics", "create", self.topic)
        self.assertEqual((made[0]["created"], made[0]["partitions"], made[0]["replicas"]), (True, PARTITIONS, 1))
        self.assertEqual(self.facts("topics", "create", self.topic, "--if-not-exists"), [{**made[0], "created": False}])
        self.assertIn("already there, 2 partitions", self.says("topics", "create", self.topic, "--if-not-exists"))
        self.assertEqual(self.facts("topics", "delete", self.topic), [{"topic": self.topic, "deleted": True}])
        self.assertEqual(self.facts("topics", "delete", self.topic, "--if-exists"), [{"topic": self.topic, "deleted": False}])
        self.assertEqual(self.says("topics", "delete", self.topic, "--if-exists"), f"{self.topic}: was not there\n")

    def test_validate_makes_nothing(self):
        self.assertIn("could be created, 7 partitions", self.says("topics", "create", self.topic, "--validate", "-p", "7"))
        self.assertNotIn(self.topic, self.says("topics", "list"))

    def test_describe_tells_partitions_offsets_and_configs(self):
        self.says("topics", "create", "-c", "retention.ms=86400000", "-c", "max.message.bytes=5000", self.topic)
        self.says("produce", self.topic, "-p", "1", given="a\nb\nc\n")
        (fact,) = self.facts("topics", "describe", self.topic)
        self.assertEqual(fact["configs"], {"max.message.bytes": "5000", "retention.ms": "86400000"})
        self.assertEqual([(one["partition"], one["begin"], one["end"], one["replicas"], one["in_sync"]) for one in fact["partitions"]],
                         [(0, 0, 0, [fact["partitions"][0]["leader"]], [1]), (1, 0, 3, [1], [1])])
        text = self.says("topics", "describe", self.topic)
        self.assertTrue(text.startswith(f"{self.topic}  id {fact['id']}  2 partitions\n"), text)
        self.assertIn("  retention.ms=86400000\n", text)
        self.assertEqual(text.splitlines()[-1].split(), ["1", "1", "0", "1", "1", "0", "3"])

    def test_what_went_well_beside_an_error_is_told(self):
        self.says("topics", "create", self.topic)
        other, third = f"{self.topic}-other", f"{self.topic}-third"
        done = self.call("topics", "create", self.topic, other, status=1)
        self.assertIn(f"{other}: created", done.stdout)
        self.assertIn(f"{self.topic}: TOPIC_ALREADY_EXISTS", done.stderr)
        self.assertIn("--if-not-exists", done.stderr)
        facts = {one["topic"]: one for one in json.loads(self.call("topics", "create", self.topic, third, "--json", status=1).stdout)}
        self.assertEqual(facts[self.topic], {"topic": self.topic, "created": False, "error": "TOPIC_ALREADY_EXISTS"})
        self.assertTrue(facts[third]["created"])
        facts = json.loads(self.call("topics", "alter", other, third, "nosuch", "-p", "3", "--json", status=1).stdout)
        self.assertEqual({one["topic"]: one["altered"] for one in facts}, {other: True, third: True, "nosuch": False})
        done = self.call("topics", "delete", "nosuch", other, "missing", status=1)
        self.assertIn(f"{other}: deleted", done.stdout)
        self.assertIn("nosuch: UNKNOWN_TOPIC", done.stderr)
        self.assertIn("missing: UNKNOWN_TOPIC", done.stderr)

    def test_own_topics_of_brokers_are_hidden_but_not_from_those_who_ask(self):
        self.filled(1)
        self.says("consume", self.topic, "-g", f"group-{self.topic}", "-c", "1")
        self.assertNotIn("__consumer_offsets", self.says("topics", "list"))
        self.assertIn("__consumer_offsets", self.says("topics", "list", "--internal"))
        self.assertTrue([one for one in self.facts("topics", "list", "--internal") if one["topic"] == "__consumer_offsets" and one["internal"]])

    def test_refusals_name_the_input_and_the_remedy(self):
        self.says("topics", "create", self.topic)
        for words, said, remedy in [(["create", self.topic], "TOPIC_ALREADY_EXISTS", "--if-not-exists"), (["create", "bad name"], "'bad name'", "other than"),
                                    (["create", "new", "-p", "0"], "0", "allowed"), (["create", "new", "-r", "3"], "3", "as many replicas as"),
                                    (["create", "new", "-c", "no.such=1"], "no.such", "ciuic configs describe"),
                                    (["alter", self.topic, "-p", "1"], self.topic, "increase"), (["alter", "nosuch", "-p", "9"], "nosuch", "ciuic topics list"),
                                    (["describe", "nosuch"], "nosuch", "ciuic topics list"), (["delete", "nosuch"], "nosuch", "ciuic topics list")]:
            self.refused("topics", *words, names=said, remedy=remedy)
        self.refused("topics", "create", "new", "-c", "retention.ms", status=2, names="retention.ms", remedy="key=value")


class Groups(Ciuic):
    def setUp(self):
        super().setUp()
        self.group = f"group-of-{self.topic}"

    def described(self):
        return self.facts("groups", "describe", self.group)[0]

    def test_a_count_commits_no_more_than_was_printed(self):
        self.filled(10)
        self.assertEqual(self.says("consume", self.topic, "-g", self.group, "-c", "3"), "0\n1\n2\n")
        self.assertEqual([(one["partition"], one["committed"], one["lag"]) for one in self.described()["offsets"] if one["committed"]], [(0, 3, 7)])
        self.assertEqual(self.says("consume", self.topic, "-g", self.group, "-c", "7"), "".join(f"{number}\n" for number in range(3, 10)))
        self.assertEqual(self.described()["lag"], 0)

    def test_progress_is_committed_while_it_is_printed(self):
        self.filled(10)
        process = self.member(self.broker.address, self.topic, "-g", self.group)
        try:
            until(lambda: any(one["group"] == self.group for one in self.facts("groups", "list")))
            until(lambda: self.described()["lag"] == 0)
        finally:
            process.kill()
            process.communicate()

    def test_an_interrupt_ends_a_member_whose_broker_is_gone(self):
        with support.brokers.running("ours", program=support.BROKER, settings=self.settings) as broker:
            self.call("topics", "create", "t", CIUIC_BOOTSTRAP=broker.address)
            self.call("produce", "t", given="a\n", CIUIC_BOOTSTRAP=broker.address)
            process = self.member(broker.address, "t", "-g", "g")
            try:
                self.assertEqual(process.stdout.readline(), "a\n")
                broker.kill()
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=15)
            finally:
                process.kill()
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(broker.address, errors)

    def test_what_one_member_has_printed_no_other_prints_when_partitions_move(self):
        self.filled(10)
        members = []
        try:
            for count in (1, 2):
                members.append(self.member(self.broker.address, self.topic, "-g", self.group, "-X", "heartbeat.interval.ms=200"))
                if count == 1:
                    self.assertEqual([members[0].stdout.readline() for _ in range(10)], [f"{number}\n" for number in range(10)])
                until(lambda: any(one["group"] == self.group for one in self.facts("groups", "list")))
                until(lambda: (one := self.described())["state"] == "Stable" and sorted(len(each["assignment"]) for each in one["members"]) == [PARTITIONS // count] * count)
            for partition in range(PARTITIONS):
                self.says("produce", self.topic, "-p", partition, given=f"late {partition}\n")
            until(lambda: self.described()["lag"] == 0)
            for process in members:
                process.send_signal(signal.SIGINT)
            printed = [process.communicate(timeout=20)[0].splitlines() for process in members]
        finally:
            for process in members:
                process.kill()
                process.communicate()
        self.assertEqual(sorted(printed), [[f"late {partition}"] for partition in range(PARTITIONS)])

    def test_members_and_their_partitions_are_shown_and_protect_the_group(self):
        self.filled(10)
        process = self.member(self.broker.address, self.topic, "-g", self.group)
        try:
            until(lambda: any(one["group"] == self.group and one["state"] == "Stable" for one in self.facts("groups", "list")))
            (row,) = [row for row in self.rows("groups", "list", "--state", "Stable") if row["GROUP"] == self.group]
            self.assertEqual((row["STATE"], row["PROTOCOL"], row["COORDINATOR"]), ("Stable", "consumer", "1"))
            fact = until(lambda: (one := self.described())["members"] and one)
            self.assertEqual((fact["state"], len(fact["members"]), fact["members"][0]["client"]), ("Stable", 1, "ciuic"))
            self.assertEqual(fact["members"][0]["assignment"], [{"topic": self.topic, "partition": number} for number in range(PARTITIONS)])
            text = self.says("groups", "describe", self.group)
            self.assertTrue(text.startswith(f"{self.group}  Stable  1 members  lag "), text)
            self.refused("groups", "delete", self.group, names=[self.group, "NON_EMPTY_GROUP"], remedy="stop the group's consumers")
            self.refused("groups", "reset-offsets", self.group, "-t", self.topic, "--to", "earliest", names=self.group, remedy="stop its consumers")
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 130, errors)
            self.assertEqual(out, "".join(f"{number}\n" for number in range(10)))
            self.assertIn("interrupted after 10 records", errors)
        finally:
            process.kill()
            process.communicate()
        self.assertEqual((self.described()["state"], self.described()["lag"]), ("Empty", 0))

    def test_offsets_are_reset_and_groups_deleted(self):
        self.filled(10)
        reset = ["groups", "reset-offsets", self.group, "-t", f"{self.topic}:0"]
        self.assertEqual(self.facts(*reset, "--to", "latest"), [{"group": self.group, "topic": self.topic, "partition": 0, "from": None, "to": 10}])
        self.assertEqual(self.facts(*reset, "--to", "4", "--dry-run")[0]["to"], 4)
        self.assertIn("Nothing was changed", self.says(*reset, "--to", "4", "--dry-run"))
        self.assertEqual(self.described()["offsets"], [{"topic": self.topic, "partition": 0, "committed": 10, "end": 10, "lag": 0}])
        self.assertEqual(self.rows(*reset, "--to", "4"), [{"GROUP": self.group, "TOPIC": self.topic, "PARTITION": "0", "FROM": "10", "TO": "4"}])
        self.assertEqual((self.described()["lag"], self.says("groups", "describe", self.group).splitlines()[-1].split()), (6, [self.topic, "0", "4", "10", "6", "-"]))
        for to, offset in {"99": 10, "@2000-01-01": 0, "@2100-01-01T00:00:00": 10, "earliest": 0}.items():
            self.assertEqual(self.facts("groups", "reset-offsets", self.group, "--to", to)[0]["to"], offset, to)
        self.assertEqual(self.facts("groups", "delete", self.group), [{"group": self.group, "deleted": True}])
        self.assertNotIn(self.group, [one["group"] for one in self.facts("groups", "list")])
        self.says(*reset, "--to", "earliest")
        self.assertEqual(self.says("groups", "delete", self.group), f"{self.group}: deleted\n")

    def test_a_group_whose_topic_is_gone_can_still_be_described(self):
        self.filled(3)
        self.says("groups", "reset-offsets", self.group, "-t", self.topic, "--to", "latest")
        kept = f"{self.topic}-kept"
        self.says("topics", "create", kept)
        self.says("groups", "reset-offsets", self.group, "-t", kept, "--to", "latest")
        self.says("topics", "delete", self.topic)
        self.assertIn(kept, [one["topic"] for one in self.described()["offsets"]])

    def test_refusals_name_the_input_and_the_remedy(self):
        self.filled(1)
        self.refused("groups", "describe", "nosuch", names="nosuch: GROUP_ID_NOT_FOUND", remedy="ciuic groups list")
        self.refused("groups", "delete", "nosuch", names="nosuch: GROUP_ID_NOT_FOUND", remedy="ciuic groups list")
        reset = ["groups", "reset-offsets", self.group]
        self.refused(*reset, "-t", "nosuch", "--to", "latest", names="nosuch", remedy="ciuic topics list")
        self.refused(*reset, "-t", f"{self.topic}:7", "--to", "latest", names=f"{self.topic}-7", remedy="ciuic topics list")
        self.refused(*reset, "-t", f"{self.topic}:x", "--to", "latest", status=2, names="x", remedy="topic:0,1")
        for to in ("soon", "-1", "99999999999999999999"):
            self.refused(*reset, "-t", self.topic, f"--to={to}", status=2, names=f"no offset: {to}", remedy="earliest")
        self.refused(*reset, "-t", self.topic, "--to", "@noon", status=2, names="noon", remedy="milliseconds since 1970")
        self.refused(*reset, status=2, names="--to", remedy="--help")


class Configs(Ciuic):
    def test_of_topics_are_set_described_and_deleted(self):
        self.says("topics", "create", self.topic)
        here = ["topic", self.topic]
        self.assertEqual(self.says("configs", "describe", *here), "Everything is at its default; --all shows it.\n")
        self.assertEqual(self.says("configs", "set", *here, "retention.ms=60000", "max.message.bytes=4096"), f"topic {self.topic}: 2 set\n")
        facts = {one["key"]: one for one in self.facts("configs", "describe", *here)}
        self.assertEqual({key: one["value"] for key, one in facts.items()}, {"max.message.bytes": "4096", "retention.ms": "60000"})
        self.assertEqual((facts["retention.ms"]["source"], facts["retention.ms"]["read_only"]), ("topic", False))
        self.assertTrue(facts["retention.ms"]["documentation"])
        self.assertIn({"KEY": "retention.ms", "VALUE": "60000", "FROM": "topic"}, self.rows("configs", "describe", *here))
        self.assertIn({"KEY": "cleanup.policy", "VALUE": "delete", "FROM": "default"}, self.rows("configs", "describe", *here, "--all"))
        self.assertEqual([one["key"] for one in self.facts("configs", "describe", *here, "cleanup.policy")], ["cleanup.policy"])
        self.assertEqual(self.says("configs", "delete", *here, "retention.ms"), f"topic {self.topic}: 1 back at the default\n")
        self.assertEqual(self.facts("configs", "set", *here, "retention.ms=5"), {"kind": "topic", "name": self.topic, "set": ["retention.ms=5"]})
        self.assertEqual(self.facts("configs", "delete", *here, "retention.ms")["deleted"], ["retention.ms"])
        self.assertEqual([one["key"] for one in self.facts("configs", "describe", *here)], ["max.message.bytes"])

    def test_of_brokers_are_described(self):
        facts = {one["key"]: one for one in self.facts("configs", "describe", "broker", "1")}
        self.assertEqual((facts["num.partitions"]["value"], facts["num.partitions"]["source"]), (str(PARTITIONS), "server.properties"))
        self.assertIn({"KEY": "num.partitions", "VALUE": str(PARTITIONS), "FROM": "server.properties"}, self.rows("configs", "describe", "broker", "1"))

    def test_refusals_name_the_input_and_the_remedy(self):
        self.says("topics", "create", self.topic)
        here = ["topic", self.topic]
        self.refused("configs", "describe", *here, "no.such", names="no.such", remedy="--all")
        self.refused("configs", "set", *here, "no.such=1", names="no.such", remedy="--all")
        self.refused("configs", "set", *here, "retention.ms=soon", names=["retention.ms", "soon"], remedy="LONG")
        self.refused("configs", "set", *here, "retention.ms", status=2, names="retention.ms", remedy="key=value")
        self.refused("configs", "describe", "group", "g", status=2, names="group", remedy="topic,broker")
        self.refused("configs", "describe", "broker", "77", names="77", remedy="expected 1")
        for words in (["describe"], ["set"], ["delete"]):
            self.refused("configs", *words, "topic", "nosuch", *(["retention.ms=1"] if words == ["set"] else ["retention.ms"]), names="nosuch", remedy="ciuic topics list")


class Offsets(Ciuic):
    def test_say_where_a_topic_begins_and_ends_and_where_a_time_lies(self):
        self.filled(7)
        self.assertEqual(self.facts("offsets", self.topic), [{"partition": 0, "begin": 0, "end": 7}, {"partition": 1, "begin": 0, "end": 0}])
        self.assertEqual(self.rows("offsets", self.topic)[0], {"PARTITION": "0", "BEGIN": "0", "END": "7", "OFFSETS": "7"})
        self.assertTrue(self.says("offsets", self.topic).endswith("7 in all\n"))
        for time_named in ("2001-01-01", "978307200", "@978307200000", "2001-01-01T00:00:00Z"):
            self.assertEqual(self.facts("offsets", self.topic, "--at", time_named), [{"partition": 0, "offset": 0}, {"partition": 1, "offset": None}], time_named)
        self.assertIn({"PARTITION": "1", "OFFSET": "none later"}, self.rows("offsets", self.topic, "--at", "2001-01-01 00:00"))
        self.refused("offsets", "nosuch", names="nosuch", remedy="ciuic topics list")
        self.refused("offsets", self.topic, "--at", "noon", status=2, names="noon", remedy="milliseconds since 1970")


class Data(Ciuic):
    def test_keys_headers_and_nulls_come_back_by_every_codec_and_way(self):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            self.topic = next(names)
            self.says("topics", "create", self.topic, "-p", "1")
            self.assertEqual(self.says("produce", "-H", "a=1", "-H", "b=x=y", self.topic, "-K", ":", "-z", codec, "-Z", given="k1:v:1\nk2:\nnone\n"), "")
            for transport in ("tcp", "rdma", "auto"):
                done = self.call("consume", self.topic, "-e", "--transport", transport, "--path", "-f", r"%t/%p/%o %k(%K)=%s(%S) %h\x2e\n")
                place = f"{self.topic}/0/"
                self.assertEqual(done.stdout, f"{place}0 k1(2)=v:1(3) a=1,b=x=y.\n{place}1 k2(2)=(-1) a=1,b=x=y.\n{place}2 (-1)=none(4) a=1,b=x=y.\n", (codec, transport))
                self.assertIn(f"{self.topic}-0: " + ("tcp" if transport == "tcp" else "one-sided by shm"), done.stderr)
                facts = [json.loads(line) for line in self.consumed("--json", "--transport", transport).splitlines()]
                self.assertEqual([(one["topic"], one["partition"], one["offset"], one["key"], one["payload"]) for one in facts],
                                 [(self.topic, 0, 0, "k1", "v:1"), (self.topic, 0, 1, "k2", None), (self.topic, 0, 2, None, "none")])
                self.assertEqual(facts[0]["headers"], [["a", "1"], ["b", "x=y"]])
                self.assertTrue(abs(facts[0]["ts"] / 1000 - time.time()) < 600 and facts[0]["tstype"] == "create", facts[0])
            (batch,) = [one for file in self.facts("log", self.broker_folder(), "--batches") for one in file.get("batch_list", [])]
            self.assertEqual((batch["codec"], batch["records"]), (codec, 3))

    def test_a_setting_by_x_has_the_last_word_over_options_and_their_defaults(self):
        self.topic = next(names)
        self.says("topics", "create", self.topic, "-p", "1")
        self.says("produce", self.topic, "-z", "gzip", "-X", "compression.type=lz4", given="one\n")
        (batch,) = [one for file in self.facts("log", self.broker_folder(), "--batches") for one in file.get("batch_list", [])]
        self.assertEqual(batch["codec"], "lz4")
        self.refused("produce", self.topic, "-X", "acks=7", status=2, names="acks", given="one\n")
        for way in ([], ["--transport", "rdma"]):
            done = self.call("consume", self.topic, "-e", "--path", *way, "-X", "transport=tcp")
            self.assertEqual(done.stdout, "one\n")
            self.assertIn(f"{self.topic}-0: tcp", done.stderr)
        self.refused("consume", self.topic, "-e", "-X", "isolation.level=dirty", status=2, names="isolation.level")

    def broker_folder(self, partition=0):
        """The partition's folder once the file has what the journal has (docs/durability.md)."""
        folder = self.logs / f"{self.topic}-{partition}"
        until(lambda: any(file.stat().st_size for file in folder.glob("*.log")))
        return folder

    def test_counts_and_files_are_as_given(self):
        self.says("topics", "create", self.topic, "-p", "1")
        one, two = f"{self.folder}/one", f"{self.folder}/two"
        for path, text in ((one, "a;b;"), (two, "line\nline\n\n")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        self.assertEqual(self.facts("produce", self.topic, one, "-D", ";"), {"topic": self.topic, "written": 2, "failed": 0})
        self.assertEqual(self.facts("produce", self.topic, "--whole", one, two, "-")["written"], 3)
        self.assertEqual(self.facts("produce", self.topic, two, "--acks", "1")["written"], 3)
        self.assertEqual([json.loads(line)["payload"] for line in self.consumed("--json").splitlines()],
                         ["a", "b", "a;b;", "line\nline\n\n", "", "line", "line", ""])

    def test_consuming_begins_and_ends_where_it_is_told(self):
        self.filled(10)
        ms = json.loads(self.consumed("--json", "-o", "4", "-c", "1"))["ts"]
        for start, expected in {"beginning": range(10), "earliest": range(10), "7": range(7, 10), "-2": range(8, 10), "-99": range(10), "end": [], "latest": [],
                                "@2100-01-01": [], "@1": range(10)}.items():
            self.assertEqual(self.consumed("-p", "0", f"--offset={start}"), "".join(f"{number}\n" for number in expected), start)
        self.assertTrue(self.consumed("-o", f"@{ms}").endswith("9\n"))
        self.assertEqual(self.says("consume", "-p", "1", "-p", "0", self.topic, "-c", "2", "--isolation", "read_committed"), "0\n1\n")
        self.assertEqual(self.consumed("-p", "0", "-o", "-2"), "8\n9\n")
        self.assertEqual(self.consumed("-p", "1"), "")
        self.assertEqual(self.consumed("-c", "0"), "")

    def test_an_interrupted_consumer_says_how_far_it_came(self):
        self.filled(3)
        process = self.member(self.broker.address, self.topic)
        try:
            self.assertEqual([process.stdout.readline() for _ in range(3)], ["0\n", "1\n", "2\n"])
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
        self.assertEqual((process.returncode, errors), (130, "ciuic: interrupted after 3 records\n"))

    def test_refusals_of_produce_name_the_input_and_the_remedy(self):
        self.says("topics", "create", self.topic)
        self.refused("produce", "nosuch", names="nosuch", remedy="ciuic topics list", given="x\n")
        self.refused("produce", self.topic, "-p", "9", status=2, names=f"{self.topic}-9", remedy="partitions 0 … 1", given="x\n")
        self.refused("produce", self.topic, "--partition=-1", status=2, names="--partition", remedy="range", given="x\n")
        self.refused("produce", self.topic, f"{self.folder}/none", names=f"{self.folder}/none", remedy="No such file")
        self.refused("produce", self.topic, self.folder, names=self.folder, remedy="Is a directory")
        self.refused("produce", self.topic, "--whole", self.folder, names=self.folder, remedy="Is a directory")
        self.refused("produce", self.topic, "-H", "naked", status=2, names="naked", remedy="key=value")
        self.refused("produce", self.topic, "-X", "no.such=1", status=2, names="no.such", remedy="docs/configuration.md")
        self.refused("produce", self.topic, "-X", "linger.ms", status=2, names="linger.ms", remedy="key=value")
        self.refused("produce", self.topic, "-z", "brotli", status=2, names="brotli", remedy="zstd")
        self.refused("produce", self.topic, "--acks", "2", status=2, names="--acks", remedy="all")
        self.refused("produce", self.topic, "-D", "", status=2, names="--delimiter", remedy="empty")
        self.refused("produce", self.topic, names="MESSAGE_TOO_LARGE", given="x" * (2 << 20))

    def test_whoever_waits_for_a_broker_is_told_once_and_when_it_is_back(self):
        with support.brokers.running("ours", program=support.BROKER, settings=self.settings) as broker:
            self.call("topics", "create", "t", CIUIC_BOOTSTRAP=broker.address)
            for words, feed in ((["produce", "t"], True), (["consume", "t", "--transport", "tcp"], False)):
                errors = os.path.join(self.folder, words[0])
                with open(errors, "wb") as sink, subprocess.Popen([CIUIC, *words, "-b", broker.address], stdin=subprocess.PIPE,
                                                                  stdout=subprocess.DEVNULL, stderr=sink, text=True) as process:
                    try:
                        self.told(process, broker, errors, feed)
                    finally:
                        process.kill()

    def told(self, process, broker, errors, feed):
        def said():
            if feed:
                process.stdin.write("x\n")
                process.stdin.flush()
            with open(errors) as log:
                return log.read()

        time.sleep(0.5)
        said()
        broker.kill()
        until(lambda: "no broker can be reached" in said(), 10)
        self.assertIn(broker.address, said())
        time.sleep(3)
        self.assertEqual(said().count("no broker can be reached"), 1, said())
        broker.start()
        until(lambda: "brokers can be reached again" in said(), 15)

    def test_words_of_kafkas_own_tools_are_answered_by_ours(self):
        for words, remedy in ((["consume", "t", "--from-beginning"], "--offset beginning"), (["consume", "--topic", "t"], "the topic's name alone"),
                              (["consume", "t", "--max-messages=3"], "--count"), (["topics", "create", "t", "--replication-factor", "1"], "--replicas"),
                              (["topics", "--list"], "ciuic topics list"), (["topics", "--describe", "--topic", "t"], "ciuic topics describe"),
                              (["produce", "t", "--producer-property", "linger.ms=1"], "-X key=value")):
            self.refused(*words, status=2, names=next(word for word in words if word.startswith("--")).split("=")[0], remedy=remedy)

    def test_refusals_of_consume_name_the_input_and_the_remedy(self):
        self.filled(1)
        for words in (["-e"], ["-e", "-p", "0"], ["-g", "g"]):
            self.refused("consume", "nosuch", *words, names="nosuch", remedy="ciuic topics list")
        self.assertNotIn("nosuch", [one["topic"] for one in self.facts("topics", "list")])
        self.refused("consume", self.topic, "-e", "-p", "9", status=2, names=f"{self.topic}-9", remedy="partitions 0 … 1")
        self.refused("consume", self.topic, "-e", "-f", "%z", status=2, names="%z", remedy="%s")
        self.refused("consume", self.topic, "-e", "-f", "a%", status=2, names="ends in the middle")
        for place in ("noon", "99999999999999999999", "1x"):
            self.refused("consume", self.topic, "-e", f"--offset={place}", status=2, names=f"no place to begin: {place}", remedy="@time")
        self.refused("consume", self.topic, "-e", "-o", "stored", status=2, names="-o stored", remedy="--group")
        for words in (["-e"], ["-p", "0"], ["-o", "5"]):
            self.refused("consume", self.topic, "-g", "g", *words, status=2, names=[words[0], "--group"], remedy="group")
        self.refused("consume", self.topic, "--count=-1", status=2, names="--count", remedy="range")
        self.refused("consume", self.topic, "--transport", "pigeon", status=2, names="pigeon", remedy="rdma")


class NoOneSided(Ciuic):
    settings = {**Ciuic.settings, "onesided.enable": "false"}

    def test_auto_falls_back_and_says_why_and_rdma_refuses(self):
        self.filled(2)
        done = self.call("consume", self.topic, "-e", "--path")
        self.assertEqual(done.stdout, "0\n1\n")
        self.assertRegex(done.stderr, f"{self.topic}-0: tcp \\(.+\\)")
        self.refused("consume", self.topic, "-e", "--transport", "rdma", names="transport=rdma")
        (found,) = [one for one in self.facts("doctor") if one["what"] == "broker"]
        self.assertEqual((found["state"], "onesided.enable" in found["remedy"]), ("could be better", True))
        (found,) = [one for one in json.loads(self.call("doctor", "--peer", "--json", status=4).stdout) if one["what"] == "peer"]
        self.assertIn("onesided.enable", found["remedy"])


class Log(Ciuic):
    def copied(self, count=100):
        """A copy of a partition's files after the broker has closed them: of a broker of its own."""
        with support.brokers.running("ours", program=support.BROKER, settings=self.settings) as broker:
            here = {"CIUIC_BOOTSTRAP": broker.address}
            self.call("topics", "create", "t", "-c", "index.interval.bytes=256", **here)
            for start in range(0, count, 10):
                self.call("produce", "t", "-p", "0", "-K", "=", given="".join(f"key {n}=value {n}\n" for n in range(start, start + 10)), **here)
            self.assertEqual(broker.stop(), 0)
            folder = f"{self.folder}/t-0"
            shutil.copytree(os.path.join(broker.folder, "logs", "t-0"), folder)
        return folder

    def test_says_what_is_in_the_files_and_finds_damage(self):
        folder = self.copied()
        by_name = {os.path.basename(one["file"]): one for one in self.facts("log", folder)}
        log = by_name["00000000000000000000.log"]
        self.assertEqual((log["batches"], log["records"], log["base_offset"], log["next_offset"], log["faults"]), (10, 100, 0, 100, []))
        self.assertTrue(by_name["00000000000000000000.index"]["entries"] > 0)
        self.assertTrue(by_name["00000000000000000000.timeindex"]["entries"] > 0)
        row = [row for row in self.rows("log", folder) if row["FILE"].endswith(".log")][0]
        self.assertEqual((row["BATCHES"], row["RECORDS"], row["NEXT OFFSET"], row["STATE"]), ("10", "100", "100", "whole"))
        path = f"{folder}/00000000000000000000.log"
        self.assertEqual(self.says("log", "-q", folder), "")
        self.assertRegex(self.says("log", path, "--records"), r"(?m)^42  \d{4}-\d\d-\d\dT\S+Z  key 42  value 42$")
        self.assertEqual(self.facts("log", path, "--records")[0]["batch_list"][4]["record_list"][2]["value"], "value 42")
        batches = [line.split() for line in self.says("log", path, "--batches").splitlines() if line.endswith(" ok")]
        self.assertEqual([(line[1], line[2], line[3]) for line in batches], [(str(n), str(n + 9), "10") for n in range(0, 100, 10)])
        where = self.facts("log", path, "--batches")[0]["batch_list"][5]["position"]
        with open(path, "r+b") as file:
            file.seek(where + 70)
            byte = file.read(1)
            file.seek(where + 70)
            file.write(bytes([byte[0] ^ 1]))
        done = self.call("log", folder, status=4)
        self.assertIn(f"{path} at {where}: CRC of batch 50 does not match", done.stdout)
        self.assertIn("restore", done.stderr)
        self.assertIn("WRONG", done.stdout)
        self.assertTrue(json.loads(self.call("log", path, "--json", status=4).stdout)[0]["faults"])
        with open(path, "r+b") as file:
            file.truncate(where + 20)
        self.assertIn(f"{path} at {where}: ", self.call("log", "-q", path, status=4).stdout)
        self.assertIn("where no batch begins", self.call("log", folder, status=4).stdout)

    def test_refusals_name_the_input_and_the_remedy(self):
        self.refused("log", f"{self.folder}/none", names=[f"{self.folder}/none", "No such file"], remedy="directory")
        for name in ("notes.txt", "notes.log", "99999999999999999999.log"):
            path = f"{self.folder}/{name}"
            open(path, "w", encoding="utf-8").close()
            self.refused("log", path, status=2, names=path, remedy=".timeindex")


class Doctor(Ciuic):
    def test_tells_what_is_there_and_a_remedy_for_what_is_not(self):
        facts = {one["what"]: one for one in self.facts("doctor")}
        self.assertIn(f"{self.broker.address}: 1 broker(s), one-sided APIs offered", facts["broker"]["detail"])
        self.assertIn("shm (works)", facts["providers"]["detail"])
        self.assertEqual((facts["memfd"]["state"], facts["memfd"]["detail"]), ("good", "works"))
        for one in facts.values():
            self.assertIn(one["state"], ("good", "could be better"))
            self.assertTrue(one["detail"] and (one["remedy"] or one["state"] == "good"), one)
        text = self.says("doctor")
        self.assertRegex(text, r"(?m)^ok  broker +127\.0\.0\.1:")
        self.assertEqual({line.index(facts[what]["detail"].split(",")[0]) for what in ("memfd", "huge shared memory", "open files")
                          for line in text.splitlines() if line[4:].startswith(f"{what} ")}, {23})

    def test_a_gpu_is_told_by_what_its_driver_can(self):
        def gpu(words):
            facts = self.facts("doctor", LD_LIBRARY_PATH=os.environ["CIUIC_FAKE_CUDA"], FAKE_CUDA=words)
            (found,) = [one for one in facts if one["what"] == "GPU"]
            return found
        found = gpu("version=12040 devices=2")
        self.assertEqual(found["detail"], "driver of CUDA 12.4, Fake GPU 0: dma-buf, read-only pins, Fake GPU 1: dma-buf, read-only pins")
        for words, detail, remedy in [("no_dma_buf", "no dma-buf, read-only pins", "nvidia_peermem"),
                                      ("no_read_only_register", "dma-buf, no read-only pins", "update")]:
            found = gpu(words)
            self.assertEqual(found["state"], "could be better", found)
            self.assertIn(detail, found["detail"])
            self.assertIn(remedy, found["remedy"])
        self.assertEqual((gpu("devices=0")["state"], gpu("devices=0")["remedy"]), ("good", ""))

    def test_reads_from_the_peer(self):
        self.filled(10)
        peer = {one["what"]: one for one in self.facts("doctor", "--peer")}["peer by shm"]
        self.assertEqual(peer["state"], "good")
        self.assertRegex(peer["detail"], r"READ of 64 B: median [\d.]+ us, .* MB/s")
        self.assertRegex(self.says("doctor", "--peer"), "(?m)^ok  peer by shm ")

    def test_without_a_broker_the_host_is_told_all_the_same(self):
        nobody = support.closed_address()
        facts = {one["what"]: one for one in self.facts("doctor", "-b", nobody)}
        self.assertEqual(facts["broker"]["state"], "could be better")
        self.assertIn(nobody, facts["broker"]["detail"])
        self.assertIn("ciuic-broker", facts["broker"]["remedy"])
        done = self.call("doctor", "-b", nobody, "--peer", status=4)
        self.assertIn("memfd", done.stdout)
        self.assertIn(f"no broker at {nobody}", done.stdout)
        self.assertIn("missing: peer", done.stderr)


class CommandLine(Ciuic):
    def test_version_is_the_brokers(self):
        broker = subprocess.run([support.BROKER, "--version"], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(run("--version").stdout.split(), ["ciuic", broker[1]])

    def test_every_command_tells_its_options_and_exit_codes(self):
        commands = [" ".join(words) for words in support.commands()]
        self.assertEqual(set(ARGUMENTS) | {"topics list", "groups list", "doctor"}, set(commands), "a command without a line in ARGUMENTS, or the other way round")
        for words in commands:
            text = run(*words.split(), "--help").stdout
            self.assertIn(f"ciuic {words}", text)
            self.assertIn("Exit codes:", text)

    def test_readme_lists_every_command(self):
        listed = re.search(r"`ciuic` \(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")).group(1)
        self.assertEqual(set(re.split(r",\s+", listed)), {words[0] for words in support.commands()})

    def test_wrong_command_lines_name_the_word_and_point_to_help(self):
        for words in [["topics", "list"], ["groups", "list"], ["doctor"], *(line.split() + more for line, more in ARGUMENTS.items())]:
            done = self.call(*words, "--no-such-flag", status=2)
            self.assertIn("--no-such-flag", done.stderr, words)
            self.assertIn("--help", done.stderr, words)
            self.assertEqual(done.stdout, "", words)
        for words in ([], ["topics"], ["nonsense"], ["topics", "nonsense"], ["produce"], ["completions", "tcsh"], ["topics", "list", "--timeout", "0"]):
            done = self.call(*words, status=2)
            self.assertIn("--help", done.stderr, words)
            if words[-1:] in (["nonsense"], ["tcsh"]):
                self.assertIn(words[-1], done.stderr)

    def test_where_no_broker_answers_every_command_says_whom_it_asked_and_what_to_do(self):
        nobody = support.closed_address()
        for words in [["topics", "list"], ["groups", "list"], ["consume", "t", "-g", "g"],
                      *(line.split() + more for line, more in ARGUMENTS.items() if line not in LOCAL)]:
            done = self.call(*words, "-b", nobody, "--timeout", "1000", status=3, given="x\n")
            self.assertIn(nobody, done.stderr, words)
            self.assertIn("-b host:port", done.stderr, words)
            self.assertEqual(done.stdout, "", words)

    def test_a_broker_that_answers_nothing_or_nonsense_is_given_up(self):
        for answer, said in (("", "no answer within 300 ms"), ("HTTP/1.1 400 Bad Request\r\n\r\n", "PLAINTEXT")):
            with NotKafka(answer) as address:
                for words in (["topics", "list"], ["consume", "t", "-e"], ["consume", "t", "-g", "g"]):
                    started = time.monotonic()
                    done = self.call(*words, "-b", address, "--timeout", "300", status=3)
                    self.assertLess(time.monotonic() - started, 15)
                    self.assertIn(address, done.stderr, words)
                    self.assertIn(said, done.stderr)

    def test_addresses_that_are_none_are_refused(self):
        for address in ("127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:", "127.0.0.1:0"):
            self.refused("topics", "list", "-b", address, status=2, names=address, remedy="host:port")
        self.refused("topics", "list", "-b", "", status=2, names="broker", remedy="host:port")
        nobody = support.closed_address()
        self.refused("topics", "list", "--bootstrap-server", nobody, status=3, names=nobody, remedy="start one")
        self.refused("topics", "list", "-b", "no.such.invalid:9092", status=3, names="no.such.invalid:9092", remedy="-b host:port")

    def test_of_several_brokers_one_that_answers_is_enough(self):
        both = f"{support.closed_address()},{self.broker.address}"
        self.assertEqual(self.facts("topics", "list", "-b", both), self.facts("topics", "list"))


class Terminal(Ciuic):
    def test_colours_are_for_terminals_and_for_those_who_want_them(self):
        self.filled(1)
        here = {"CIUIC_BOOTSTRAP": self.broker.address}
        damaged = f"{self.folder}/00000000000000000000.log"
        with open(damaged, "wb") as file:
            file.write(b"no batch" * 20)
        for words, coloured in {("topics", "list"): "\x1b[1mTOPIC", ("topics", "describe", self.topic): f"\x1b[1m{self.topic}\x1b[0m", ("doctor",): "\x1b[32mok ",
                                ("topics", "describe", "nosuch"): "\x1b[31mciuic:\x1b[0m nosuch", ("log", damaged): f"\x1b[31m{damaged}"}.items():
            self.assertIn(coloured, on_a_terminal(*words, **here)[1], words)
            self.assertNotIn("\x1b[", on_a_terminal(*words, NO_COLOR="1", **here)[1].replace("\r\x1b[K", ""), words)
            self.assertIn(coloured, on_a_terminal(*words, NO_COLOR="", **here)[1], words)
        self.assertNotIn(ESCAPE, on_a_terminal("topics", "list", "--json", **here)[1])
        self.assertNotIn(ESCAPE, on_a_terminal("consume", self.topic, "-e", **here)[1])


class Completions(Ciuic):
    def complete(self, *words):
        """What bash would offer for the last word."""
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ciuic; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", f"{self.folder}/bash", "ciuic", *words], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_are_valid_in_every_shell_that_is_here(self):
        for shell in ("bash", "zsh", "fish"):
            path = f"{self.folder}/{shell}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.says("completions", shell))
            self.assertTrue(os.path.getsize(path))
            if shutil.which(shell):
                done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_bash_offers_commands_and_options(self):
        with open(f"{self.folder}/bash", "w", encoding="utf-8") as file:
            file.write(self.says("completions", "bash"))
        self.assertEqual(self.complete("top"), ["topics"])
        self.assertEqual(self.complete("topics", "de"), ["delete", "describe"])
        self.assertEqual(self.complete("-b", "x", "consume", "--tr"), ["--transport"])
        self.assertEqual(self.complete("topics", "create", "--part"), ["--partitions"])
        for words in support.commands():
            self.assertIn(words[-1], self.complete(*words), words)

    def test_fish_offers_every_command(self):
        text = self.says("completions", "fish")
        for words in support.commands():
            self.assertIn(f" -a {words[-1]} ", text, words)


def every_command_was_called():
    """Each that --help lists, plain and with --json where it has that."""
    for words in support.commands():
        done = [call for call in support.called if call[:len(words)] == words]
        for wanted in [False] if words == ["completions"] else [False, True]:
            assert any(("--json" in call) == wanted for call in done), f"no test calls `ciuic {' '.join(words)}`{' with --json' if wanted else ''}"


def load_tests(_, tests, __):
    tests.addTest(unittest.FunctionTestCase(every_command_was_called))  # the last one; not where only some tests are wanted
    return tests


if __name__ == "__main__":
    counted.main()

"""One case: its lines, one action each; an indented line that starts with `->` is what the action before must give."""
import re
import socket
import struct
import time

import batch
import literal
from wire import KEYS, Closed, Connection


class Failed(Exception):
    pass


def cases_of(path):
    """A file holds any number of cases; each begins with `# name:`."""
    out = []
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if line.startswith("# name:"):
            out.append({"name": line[7:].strip(), "why": "", "path": path, "line": number, "lines": [], "only": None})
        elif line.startswith("# why:") and out:
            out[-1]["why"] = line[6:].strip()
        elif line.startswith("# only:") and out:
            out[-1]["only"] = line[7:].split()[0]
        elif line.strip() and not line.startswith("#"):
            if line.startswith("   ") and not line.strip().startswith("->"):
                out[-1]["lines"][-1][1] += " " + line.strip()
            else:
                out[-1]["lines"].append([number, line.strip()])
    return out


class Case:
    """`patient`: Apache's broker may lag its controller, so what is retriable is asked again; ours must have it at once."""

    def __init__(self, broker, case, number, patient):
        self.broker, self.address, self.case, self.patient = broker, broker.address, case, patient
        self.stem = f"s{int(time.time() * 10) % 100000000}-{number}-"
        self.names = {"group": self.stem + "group", "zero": bytes(16), "__consumer_offsets": "__consumer_offsets"}
        self.connections, self.last, self.took = {}, None, 0
        self.log_from = len(self.log())

    def run(self):
        number = 0
        try:
            for number, line in self.case["lines"]:
                self.do(line)
            number = "end"
            Connection(self.address).ask("ApiVersions", 0, {})  # whatever the case did, others are served
        except (Failed, Closed, KeyError, ValueError, IndexError, TypeError, OSError) as problem:
            return f"{self.case['path']}:{number}: {type(problem).__name__}: {problem}"
        finally:
            for each in self.connections.values():
                each.socket.close()
        return None

    def connection(self, name="main"):
        if name not in self.connections:
            self.connections[name] = Connection(self.address)
        return self.connections[name]

    def do(self, line):
        if line.startswith("->"):
            return self.expect(line[2:].strip())
        name = "main"
        if line.startswith("@"):
            name, line = line[1:].split(None, 1)
        word, _, rest = line.partition(" ")
        action = getattr(self, "do_" + word, None)
        if action is None:
            raise ValueError(f"unknown action '{word}'; README.md lists them")
        began = time.monotonic()
        action(name, rest.strip())
        self.took = round((time.monotonic() - began) * 1000)

    def log(self):
        path = getattr(self.broker, "log", None)
        return open(path, encoding="utf-8", errors="replace").read() if path else ""

    def tries(self):
        """Once with ours; with Apache for five seconds."""
        for _ in range(50 if self.patient else 1):
            yield
            time.sleep(0.1 if self.patient else 0)

    def expect(self, text):
        if text == "closed":
            if self.last != "closed":
                raise Failed(f"{str(self.last)[:300]}, wanted a closed connection")
            return
        if text.startswith("took "):
            found = literal.differs(text.split()[1], self.took, self.names, "milliseconds")
        else:
            found = literal.differs(literal.parse(text, self.names), self.last, self.names)
        if found:
            raise Failed(found)

    def do_topic(self, _, rest):
        words = rest.split()
        options = dict(word.split("=", 1) for word in words[1:])
        partitions = int(options.pop("partitions", 1))
        name = self.stem + words[0]
        self.names[words[0]] = name
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1,
                 "configs": [{"name": k, "value": v} for k, v in options.items()]}
        self.last = self.connection().ask("CreateTopics", 5, {"topics": [topic], "timeout_ms": 10000})["topics"][0]
        if self.last["error_code"] != 0:
            raise Failed(f"topic {words[0]}: {self.last['error_code']} {self.last['error_message']}")
        for _ in self.tries():
            described = self.connection().ask("Metadata", 12, {"topics": [{"topic_id": bytes(16), "name": name}]})["topics"][0]
            if described["error_code"] == 0 and self.leads(name, partitions):
                break
        self.names[words[0] + "_id"] = described["topic_id"]

    def leads(self, topic, partitions):
        ends = [{"partition_index": each, "timestamp": -1} for each in range(partitions)]
        answer = self.connection().ask("ListOffsets", 4, {"replica_id": -1, "topics": [{"name": topic, "partitions": ends}]})
        return all(each["error_code"] == 0 for each in answer["topics"][0]["partitions"])

    def do_name(self, _, rest):
        self.names[rest] = self.stem + rest

    def do_batch(self, _, rest):
        word, _, rest = rest.partition(" ")
        options = literal.parse("{" + re.sub(r"(\w+)=", r",\1: ", rest).lstrip(",") + "}", self.names)
        options["values"] = [str(each) for each in options["values"]]
        self.names[word] = batch.build(**options)

    def do_join(self, _, rest):
        words = rest.split()
        self.names[words[0]] = b"".join(self.names[each] for each in words[1:])

    def do_produce(self, name, rest):
        where, records, *options = rest.split()
        topic, _, partition = where.partition("/")
        options = dict(word.split("=", 1) for word in options)
        version = int(options.get("v", 9))
        data = {"name": self.names[topic], "partition_data": [{"index": int(partition or 0), "records": self.names[records.lstrip("$")]}]}
        body = {"acks": int(options.get("acks", -1)), "timeout_ms": 10000, "topic_data": [data]}
        for _ in self.tries():
            self.last = self.connection(name).ask("Produce", version, body)["responses"][0]["partition_responses"][0]
            if self.last["error_code"] not in (3, 5, 6):
                break

    def do_pipeline(self, name, rest):
        """pipeline t a b c: a Produce each, all sent before the first answer is read; the partition's answers as a list."""
        topic, *batches = rest.split()
        connection, frames, first = self.connection(name), b"", self.connection(name).correlation + 1
        for each in batches:
            data = {"name": self.names[topic], "partition_data": [{"index": 0, "records": self.names[each]}]}
            frames += connection.frame("Produce", 9, {"acks": -1, "timeout_ms": 10000, "topic_data": [data]})
        connection.send(frames)
        self.last = []
        for connection.correlation in range(first, first + len(batches)):
            self.last.append(connection.answer("Produce", 9)["responses"][0]["partition_responses"][0])

    def do_fetch(self, name, rest):
        where, *options = rest.split()
        topic, _, partition = where.partition("/")
        options = dict(word.split("=", 1) for word in options)
        one = {"partition": int(partition or 0), "fetch_offset": int(options.get("from", 0)), "partition_max_bytes": int(options.get("bytes", 1 << 20))}
        body = {"replica_id": -1, "max_wait_ms": int(options.get("wait", 500)), "min_bytes": int(options.get("min", 1)),
                "isolation_level": int(options.get("isolation", 0)), "max_bytes": int(options.get("total", 1 << 24)),
                "topics": [{"topic": self.names[topic], "partitions": [one]}]}
        version = int(options.get("v", 11))
        if version >= 13:  # by id
            body["topics"] = [{"topic_id": self.names[topic + "_id"], "partitions": [one]}]
        if version >= 15:  # a tagged structure that only replicas send
            del body["replica_id"]
        answer = see_records(self.connection(name).ask("Fetch", version, body))
        if answer.get("error_code", 0) != 0:
            raise Failed(f"Fetch v{version}: error {answer['error_code']}")
        self.last = answer["responses"][0]["partitions"][0]

    def do_send(self, name, rest):
        api, version, body = (rest.split(None, 2) + ["{}"])[:3]
        connection = self.connection(name)
        try:
            connection.send(connection.frame(api, int(version.lstrip("v")), literal.parse(body, self.names)))
            self.last = see_records(connection.answer(api, int(version.lstrip("v"))))
        except Closed:
            self.last = "closed"

    def do_ask(self, name, rest):
        """Sends and does not wait: `answers` reads what this connection still has to be told, in the order asked."""
        api, version, body = (rest.split(None, 2) + ["{}"])[:3]
        connection = self.connection(name)
        connection.send(connection.frame(api, int(version.lstrip("v")), literal.parse(body, self.names)))
        connection.asked.append((connection.correlation, api, int(version.lstrip("v"))))

    def do_answers(self, name, _):
        connection, self.last = self.connection(name), []
        for connection.correlation, api, version in connection.asked:
            self.last.append(see_records(connection.answer(api, version)))
        connection.asked = []

    def do_soon(self, name, rest):
        """soon {…} send …: so at once with ours; Apache's broker, which may lag its controller, is asked again."""
        wanted, _, again = rest.partition(" send ")
        for _ in self.tries():
            self.do_send(name, again)
            found = literal.differs(literal.parse(wanted, self.names), self.last, self.names)
            if found is None:
                return
        raise Failed(found)

    def do_logged(self, _, rest):
        """logged "REGEX": since the case began the broker has logged such a line."""
        if not hasattr(self.broker, "log"):
            return  # a broker that somebody else started
        for _ in range(50):
            if re.search(rest[1:-1], self.log()[self.log_from:]):
                return
            time.sleep(0.1)
        raise Failed(f"the broker's log has no line like {rest}; it has: {self.log()[self.log_from:][-600:]}")

    def do_half_close(self, name, _):
        """Our sending half is closed; then the connection is watched until the broker closes it."""
        connection = self.connection(name)
        connection.socket.shutdown(socket.SHUT_WR)
        self.last = "closed" if connection.closed() else "silence"

    def do_send_unknown(self, name, rest):
        """send_unknown Api N: a version that no schema has, with an empty body."""
        api, version = rest.split()
        connection = self.connection(name)
        connection.correlation += 1
        head = struct.pack(">hhih", KEYS[api].key, int(version), connection.correlation, 6) + b"suites\0"
        try:
            connection.send(struct.pack(">i", len(head)) + head)
            self.last = connection.answer(api, int(version))
        except Closed:
            self.last = "closed"
            del self.connections[name]

    def do_until(self, name, rest):
        """until {…} send …: asks again until the answer is so (things that settle, like a coordinator)."""
        wanted, _, again = rest.partition(" send ")
        for _ in range(100):
            self.do_send(name, again)
            if literal.differs(literal.parse(wanted, self.names), self.last, self.names) is None:
                return
            time.sleep(0.1)
        raise Failed(f"never became {wanted}: {str(self.last)[:300]}")

    def do_raw(self, name, rest):
        """raw 00 00 …, with `zeros N` and `text WORD`; then the connection is watched until it closes."""
        out, words = b"", rest.split()
        while words:
            word = words.pop(0)
            out += bytes(int(words.pop(0))) if word == "zeros" else words.pop(0).encode() if word == "text" else bytes.fromhex(word)
        connection = self.connection(name)
        try:
            connection.send(out)
            self.last = "closed" if connection.closed() else "silence"
        except Closed:
            self.last = "closed"

    def do_cut(self, name, rest):
        """cut N Api vV {…}: only the first N bytes of the frame, then our end closes."""
        count, api, version, body = rest.split(None, 3)
        connection = self.connection(name)
        connection.send(connection.frame(api, int(version[1:]), literal.parse(body, self.names))[:int(count)])
        connection.socket.close()
        del self.connections[name]

    def do_sleep(self, _, rest):
        time.sleep(float(rest))


def see_records(value):
    """Every `records` in an answer becomes the list of its batches."""
    if isinstance(value, dict):
        return {key: batch.read(each or b"") if key == "records" else see_records(each) for key, each in value.items()}
    return [see_records(each) for each in value] if isinstance(value, list) else value

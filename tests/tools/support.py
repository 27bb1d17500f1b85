"""Runs `ciuic` as people and programs do: one call, its exit status, what it said; on a pipe and on a terminal."""

import json
import os
import pathlib
import pty
import re
import socket
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "clients" / "support"), str(ROOT / "tests" / "unit" / "python")]
import brokers  # noqa: E402

BROKER = os.environ.get("CIUIC_BROKER", "")
CIUIC = os.environ.get("CIUIC", str(pathlib.Path(BROKER).parent / "ciuic"))
SECONDS = 60
ESCAPE = "\x1b"
called = []  # the words of every call that did what it should


def closed_address():
    return f"127.0.0.1:{brokers.free_port()}"


def environment(**more):
    plain = {key: value for key, value in os.environ.items() if key not in ("CIUIC_BOOTSTRAP", "NO_COLOR")}
    return {**plain, **more}


def run(*words, given="", **more):
    """One call with pipes for all three streams. No such call may ever print colours, whatever the test is about."""
    words = [str(word) for word in words]
    done = subprocess.run([CIUIC, *words], input=given.encode(), capture_output=True, timeout=SECONDS, env=environment(**more), check=False)
    done.stdout, done.stderr = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert ESCAPE not in done.stdout + done.stderr, f"colours on a pipe: ciuic {' '.join(words)}: {done.stdout!r} {done.stderr!r}"
    return done


def on_a_terminal(*words, **more):
    """(status, text) of a call whose output and errors go to a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([CIUIC, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment(TERM="xterm", **more))
    os.close(theirs)
    text = b""
    try:
        while block := os.read(ours, 65536):
            text += block
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    return process.wait(SECONDS), text.decode()


def commands():
    """Every command that does something, from --help itself: ["topics", "list"], …"""
    found = []

    def walk(path):
        text = run(*path, "--help").stdout
        below = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
        names = re.findall(r"^  (\S+)", below.group(1), re.M) if below else []
        for name in names:
            walk([*path, name])
        if not names:
            found.append(path)

    walk([])
    return found


class Live(unittest.TestCase):
    """A broker for the class; `says` and `facts` are a plain call and one with --json."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        cls._running = brokers.running("ours", program=BROKER, settings=cls.settings)
        cls.broker = cls._running.__enter__()
        cls.logs = pathlib.Path(cls.broker.folder) / "logs"

    @classmethod
    def tearDownClass(cls):
        cls._running.__exit__(None, None, None)

    def call(self, *words, status=0, given="", **more):
        done = run(*words, given=given, **{"CIUIC_BOOTSTRAP": self.broker.address, **more})
        self.assertEqual(done.returncode, status, f"ciuic {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        if status == 0:
            called.append([str(word) for word in words])
        return done

    def says(self, *words, **more):
        return self.call(*words, **more).stdout

    def facts(self, *words, **more):
        return json.loads(self.call(*words, "--json", **more).stdout)

    def rows(self, *words, **more):
        """A table's lines as dictionaries by its head; columns are two spaces apart."""
        head, *lines = [re.split(r"  +", line.strip()) for line in self.says(*words, **more).splitlines()]
        return [dict(zip(head, line)) for line in lines if len(line) == len(head)]

    def refused(self, *words, status=1, names, remedy="", given="", **more):
        """The exit status, and that the message names the input and says what to do."""
        for extra in ([], ["--json"]) if "completions" not in words else ([],):
            done = self.call(*words, *extra, status=status, given=given, **more)
            for text in [names] if isinstance(names, str) else names:
                self.assertIn(text, done.stderr, words)
            self.assertIn(remedy, done.stderr, words)
        return done


class NotKafka:
    """Listens, and answers whoever speaks with a line of HTTP, or never."""

    def __init__(self, answer):
        self.answer = answer

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        port = self.socket.getsockname()[1]
        program = ("import socket, sys\nlistener = socket.socket(fileno=int(sys.argv[1]))\nwhile True:\n"
                   "    one, _ = listener.accept()\n    one.recv(65536)\n    one.sendall(sys.argv[2].encode())\n")
        self.process = subprocess.Popen([sys.executable, "-c", program, str(self.socket.fileno()), self.answer], pass_fds=[self.socket.fileno()])
        return f"127.0.0.1:{port}"

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.socket.close()

#!/usr/bin/env python3
"""Whoever reaches a port may send what he likes: of each kind of line that he causes the broker's log has a few a second, and
says how many it left out."""

import contextlib
import glob
import os
import re
import socket
import struct
import time
import unittest

from support import BROKER, brokers
import counted

FLOOD, A_SECOND = 300, 10
HELLO = struct.pack("=8sII32s", b"CUICSHM1", 1, 0, bytes(32))  # transport/rdma/shm/protocol.h


def request(key, version, body=b""):
    head = struct.pack(">hhi", key, version, 1)
    return struct.pack(">i", len(head + body)) + head + body


# what is sent on a connection of its own: what the log says of it
FLOODS = {
    "a frame of no size": (struct.pack(">i", -5), "size=-5"),
    "a frame too large for its api": (struct.pack(">ihhi", 64 << 20, 3, 9, 1), "too large for its api"),
    "a head that ends early": (request(18, 3, b"\x7f"), "malformed request"),
    "an api that there is none of": (request(9999, 0, b"\xff\xff"), "unsupported api or version"),
    "a body that is none": (request(3, 1, b"\xff\xff\x7f\xff\xff\xff"), "api=3 version=1 reason"),
}


class Flood(unittest.TestCase):
    def test_each_kind_is_bounded_and_what_was_left_out_is_counted(self):
        with brokers.running("ours", program=BROKER) as broker:
            def by_tcp(what):
                with socket.create_connection(("127.0.0.1", broker.port)) as one:
                    one.sendall(what)
                    one.settimeout(10)
                    try:
                        self.assertEqual(one.recv(1), b"")
                    except ConnectionResetError:
                        pass

            def bad_token(_):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
                    one.connect(glob.glob(f"{broker.folder}/logs/onesided/*")[0])
                    one.send(HELLO)
                    one.settimeout(10)
                    one.recv(100)

            for name, (what, words) in {**FLOODS, "a token that is none": (None, "token unknown")}.items():
                with self.subTest(name):
                    send = by_tcp if what is not None else bad_token
                    began = time.monotonic()
                    for _ in range(FLOOD):
                        send(what)
                    seconds = time.monotonic() - began
                    time.sleep(1.1)
                    send(what)
                    time.sleep(0.1)
                    with open(broker.log, encoding="utf-8", errors="replace") as log:
                        lines = [line for line in log if words in line]
                    self.assertGreaterEqual(len(lines), 2)
                    self.assertLessEqual(len(lines), A_SECOND * (int(seconds) + 1) + 1)
                    left_out = sum(int(count) for line in lines for count in re.findall(r" left_out=(\d+)$", line.rstrip()))
                    self.assertEqual(len(lines) + left_out, FLOOD + 1)

    def test_the_start_of_many_groups_is_told_whole(self):
        def text(value):
            return struct.pack(">h", len(value)) + value

        with brokers.running("ours", program=BROKER) as broker, contextlib.ExitStack() as open_ones:
            def asked(what):
                one = open_ones.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=10))
                one.sendall(what)
                return one

            for number in range(FLOOD):
                group = b"job-%d" % number
                until = time.monotonic() + 20
                while asked(request(10, 0, text(b"") + text(group))).recv(4096)[8:10] != b"\0\0":
                    self.assertLess(time.monotonic(), until, "no coordinator")
                    time.sleep(0.1)
                asked(request(11, 0, text(b"") + text(group) + struct.pack(">i", 30000) + text(b"") + text(b"consumer")
                              + struct.pack(">i", 1) + text(b"range") + struct.pack(">i", 0)))
            time.sleep(1)
            with open(broker.log, encoding="utf-8", errors="replace") as log:
                begun = set(re.findall(r" rebalance group=(\S+) ", log.read()))
            self.assertEqual(len(begun), FLOOD)


if __name__ == "__main__":
    counted.main()

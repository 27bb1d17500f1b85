#!/usr/bin/env python3
"""A port of loopback that a server may be given a while later, and again after it was down. Run by itself it prints one."""
import contextlib
import random
import socket


def free_port():
    """One below those that the system takes for connections: of these somebody else's may hold it by the time a server
    that takes seconds to start binds it."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        below = int(file.read().split()[0])
    for _ in range(1000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", random.randrange(10000, below)))
            return one.getsockname()[1]
    raise RuntimeError(f"no port from 10000 to {below} is free")


if __name__ == "__main__":
    print(free_port())

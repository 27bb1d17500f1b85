"""A connection to a broker: frames out, frames in, each with a deadline."""
import socket
import struct

import schema

MESSAGES = schema.load()
KEYS = {name[:-len("Request")]: each for name, each in MESSAGES.items() if each.what == "request"}
SECONDS = 15


class Closed(Exception):
    pass


class Connection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0
        self.asked = []  # sent and not read yet: correlation id, API, version

    def frame(self, api, version, body, client_id="suites"):
        request = KEYS[api]
        self.correlation += 1
        flexible = schema.within(request.flexible, version)
        head = struct.pack(">hhih", request.key, version, self.correlation, len(client_id)) + client_id.encode() + (b"\0" if flexible else b"")
        whole = head + schema.encode(request.fields, body, version, flexible)
        return struct.pack(">i", len(whole)) + whole

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as problem:
            raise Closed(str(problem)) from problem

    def receive(self, count):
        out = b""
        while len(out) < count:
            try:
                piece = self.socket.recv(count - len(out))
            except ConnectionError as problem:
                raise Closed(str(problem)) from problem
            if not piece:
                raise Closed("the broker closed the connection")
            out += piece
        return out

    def answer(self, api, version):
        data = self.receive(struct.unpack(">i", self.receive(4))[0])
        response = MESSAGES[api + "Response"]
        flexible = schema.within(response.flexible, version)
        reader = schema.Reader(data)
        correlation = reader.number("int32")
        if correlation != self.correlation:
            raise ValueError(f"correlation id {correlation}, wanted {self.correlation}")
        if flexible and api != "ApiVersions":
            reader.take(1)
        # An unknown version of ApiVersions is answered in version 0.
        if api == "ApiVersions" and data[4:6] == b"\0\x23":
            version, flexible = 0, False
        body = schema.decode(response.fields, reader, version, flexible)
        if reader.at != len(data):
            raise ValueError(f"{len(data) - reader.at} bytes too many in {api} v{version}")
        return body

    def ask(self, api, version, body):
        self.send(self.frame(api, version, body))
        return self.answer(api, version)

    def closed(self):
        """True once the broker has closed; an answer in between is read away."""
        try:
            while self.socket.recv(65536):
                pass
            return True
        except ConnectionError:
            return True
        except socket.timeout:
            return False

"""Encodes and decodes any request and response by the schema files that the broker itself is generated from."""
import glob
import os
import re
import struct

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "..", "transport", "kafka", "schema")
FORMATS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}


class Field:
    def __init__(self, words, depth):
        self.depth, self.name, kind = depth, words[0], words[1]
        self.array = kind.startswith("[]")
        self.kind = kind[2:] if self.array else kind
        self.versions = span(words[2])
        self.null, self.tag, self.tagged, self.default, self.fields = None, None, None, None, []
        rest = words[3:]
        while rest:
            word = rest.pop(0)
            if word == "null":
                self.null = span(rest.pop(0))
            elif word == "tag":
                self.tag, self.tagged = int(rest.pop(0)), span(rest.pop(0))
            elif word == "=":
                self.default = rest.pop(0)
            elif word == "flexible":
                rest.pop(0)


class Message:
    def __init__(self, words):
        self.what, self.name = words[0], words[1]
        self.key, self.versions, self.flexible, self.fields = None, (0, 0), (1 << 15, -1), []
        for at, word in enumerate(words):
            if word == "key":
                self.key = int(words[at + 1])
            elif word == "versions":
                self.versions = span(words[at + 1])
            elif word == "flexible":
                self.flexible = span(words[at + 1])


def span(text):
    if text == "none":
        return (1 << 15, -1)
    if text.endswith("+"):
        return (int(text[:-1]), 1 << 15)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


def within(versions, version):
    return versions is not None and versions[0] <= version <= versions[1]


def load():
    messages, structs = {}, {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.schema"))):
        stack, local = [], {}
        for line in open(path, encoding="utf-8"):
            line = re.sub(r"(^|\s)#.*", "", line.rstrip())
            if not line.strip():
                continue
            depth = (len(line) - len(line.lstrip())) // 2
            words = re.findall(r'"[^"]*"|\S+', line)
            if depth == 0:
                node = Message(words)
                (local if words[0] == "struct" else messages)[node.name] = node
                stack = [node]
                continue
            if words[0] == "struct":  # named inside a message, for several of its fields
                local[words[1]] = Message(words)
                stack[depth:] = [local[words[1]]]
                continue
            node = Field(words, depth)
            del stack[depth:]
            stack[-1].fields.append(node)
            stack.append(node)
        structs[path] = local
        for message in list(messages.values()) + list(local.values()):
            share(message, local)
    return messages


def share(node, local):
    for field in node.fields:
        if not field.fields and field.kind in local:
            field.fields = local[field.kind].fields
        share(field, local)


def uvarint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if count < 0 or count > len(self.data) - self.at:
            raise ValueError(f"{count} bytes wanted, {len(self.data) - self.at} left")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, kind):
        return struct.unpack(FORMATS[kind], self.take(struct.calcsize(FORMATS[kind])))[0]

    def uvarint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def length(self, flexible, kind):
        return self.uvarint() - 1 if flexible else self.number(kind)


def default_of(field):
    if field.array:
        return None if field.default == "null" else []
    text = field.default
    if text == "null":
        return None
    if field.kind in FORMATS:
        return float(text or 0) if field.kind == "float64" else int(text or "0", 0)
    if field.kind == "bool":
        return text == "true"
    if field.kind == "string":
        return (text or '""').strip('"')
    if field.kind in ("bytes", "records"):
        return b""
    return bytes(16) if field.kind == "uuid" else {}


def encode(fields, value, version, flexible):
    unknown = set(value) - {field.name for field in fields}
    if unknown:
        raise KeyError(f"no such field: {', '.join(sorted(unknown))}")
    out, tags = b"", []
    for field in fields:
        if not within(field.versions, version):
            continue
        given = value.get(field.name, default_of(field))
        if field.tag is not None and within(field.tagged, version):
            if field.name in value:
                tags.append((field.tag, encode_field(field, given, version, flexible)))
        else:
            out += encode_field(field, given, version, flexible)
    if flexible:
        out += uvarint(len(tags))
        for tag, body in sorted(tags):
            out += uvarint(tag) + uvarint(len(body)) + body
    return out


def length_of(count, flexible, kind):
    return uvarint(count + 1) if flexible else struct.pack(FORMATS[kind], count)


def encode_field(field, value, version, flexible):
    if field.array:
        if value is None:
            return length_of(-1, flexible, "int32")
        return length_of(len(value), flexible, "int32") + b"".join(encode_one(field, each, version, flexible) for each in value)
    return encode_one(field, value, version, flexible)


def encode_one(field, value, version, flexible):
    kind = field.kind
    if kind in FORMATS:
        return struct.pack(FORMATS[kind], value)
    if kind == "bool":
        return b"\1" if value else b"\0"
    if kind == "uuid":
        return value
    if kind in ("string", "bytes", "records"):
        width = "int16" if kind == "string" else "int32"
        if value is None:
            return length_of(-1, flexible, width)
        data = value.encode() if isinstance(value, str) else value
        return length_of(len(data), flexible, width) + data
    if field.null is not None and not field.array:  # a struct that may be null has a byte that says so
        return b"\xff" if value is None else b"\1" + encode(field.fields, value, version, flexible)
    return encode(field.fields, value, version, flexible)


def decode(fields, reader, version, flexible):
    out, tagged = {}, {}
    for field in fields:
        if not within(field.versions, version):
            continue
        if field.tag is not None and within(field.tagged, version):
            tagged[field.tag] = field
            out[field.name] = default_of(field)
        else:
            out[field.name] = decode_field(field, reader, version, flexible)
    if flexible:
        for _ in range(reader.uvarint()):
            tag, size = reader.uvarint(), reader.uvarint()
            body = Reader(reader.take(size))
            if tag in tagged:
                out[tagged[tag].name] = decode_field(tagged[tag], body, version, flexible)
    return out


def decode_field(field, reader, version, flexible):
    if field.array:
        count = reader.length(flexible, "int32")
        return None if count < 0 else [decode_one(field, reader, version, flexible) for _ in range(count)]
    return decode_one(field, reader, version, flexible)


def decode_one(field, reader, version, flexible):
    kind = field.kind
    if kind in FORMATS:
        return reader.number(kind)
    if kind == "bool":
        return reader.take(1) != b"\0"
    if kind == "uuid":
        return reader.take(16)
    if kind in ("string", "bytes", "records"):
        size = reader.length(flexible, "int16" if kind == "string" else "int32")
        if size < 0:
            return None
        data = reader.take(size)
        return data.decode() if kind == "string" else data
    if field.null is not None and not field.array:
        return None if reader.number("int8") < 0 else decode(field.fields, reader, version, flexible)
    return decode(field.fields, reader, version, flexible)

"""Record batches (magic 2), written and read; only what cases need: none, gzip, and snappy as literals."""
import struct
import zlib

from schema import Reader, uvarint

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TABLE = []
for _each in range(256):
    for _ in range(8):
        _each = _each >> 1 ^ (0x82F63B78 if _each & 1 else 0)
    TABLE.append(_each)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def zigzag(value):
    return uvarint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def blob(data):
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def snappy_raw(data):
    out = uvarint(len(data))
    for at in range(0, len(data), 60):
        piece = data[at:at + 60]
        out += bytes([(len(piece) - 1) << 2]) + piece
    return out


def snappy_framed(data):
    body = snappy_raw(data)
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(body)) + body


def compress(codec, data):
    if codec == "gzip":
        maker = zlib.compressobj(6, zlib.DEFLATED, 31)
        return maker.compress(data) + maker.flush()
    return {"none": lambda d: d, "snappy": snappy_raw, "snappy_framed": snappy_framed}[codec](data)


def snappy_unraw(data):
    reader, out = Reader(data), bytearray()
    size = reader.uvarint()
    while reader.at < len(data):
        tag = reader.take(1)[0]
        if tag & 3 == 0:
            count = (tag >> 2) + 1
            if count > 60:
                count = int.from_bytes(reader.take(count - 60), "little") + 1
            out += reader.take(count)
            continue
        if tag & 3 == 1:
            count, back = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | reader.take(1)[0]
        else:
            count, back = (tag >> 2) + 1, int.from_bytes(reader.take(2 if tag & 3 == 2 else 4), "little")
        for _ in range(count):
            out.append(out[-back])
    if len(out) != size:
        raise ValueError("snappy: wrong length")
    return bytes(out)


def decompress(codec, data):
    if codec == 0:
        return data
    if codec == 1:
        return zlib.decompress(data, 31)
    if codec == 2:
        if not data.startswith(b"\x82SNAPPY\0"):
            return snappy_unraw(data)
        out, at = b"", 16
        while at < len(data):
            size = struct.unpack_from(">i", data, at)[0]
            out += snappy_unraw(data[at + 4:at + 4 + size])
            at += 4 + size
        return out
    return None


def build(values, key=None, time=1000, step=0, codec="none", pid=-1, epoch=-1, seq=-1, magic=2, attributes=0, size=0, spoil=None):
    """`size=N` fills each value up to N bytes. `spoil=crc` makes the sum wrong, `spoil=count` lies about the number of records, `spoil=length` about the length."""
    body = b""
    for at, value in enumerate(values):
        record = b"\0" + zigzag(at * step) + zigzag(at) + blob(None if key is None else key.encode()) + blob(value.encode().ljust(size, b".")) + zigzag(0)
        body += zigzag(len(record)) + record
    codec_number = CODECS.index(codec.replace("_framed", ""))
    count = len(values) + (1000000 if spoil == "count" else 0)
    last = max(len(values) - 1, 0)
    tail = struct.pack(">hiqqqhii", attributes | codec_number, last, time, time + last * step, pid, epoch, seq, count) + compress(codec, body)
    crc = crc32c(tail) ^ (1 if spoil == "crc" else 0)
    length = 9 + len(tail) + (77 if spoil == "length" else 0)
    return struct.pack(">qiibI", 0, length, -1, magic, crc) + tail


def read(data):
    """The whole batches in `data`, as cases see them."""
    out, at = [], 0
    while len(data) - at >= 61:
        base, length, epoch, magic, crc = struct.unpack_from(">qiibI", data, at)
        if length < 49 or length > len(data) - at - 12:
            break
        whole = data[at:at + 12 + length]
        attributes, last, first_time, max_time, pid, pepoch, seq, count = struct.unpack_from(">hiqqqhii", whole, 21)
        payload = decompress(attributes & 7, whole[61:])
        batch = {"base_offset": base, "last_offset": base + last, "magic": magic, "leader_epoch": epoch, "count": count,
                 "codec": CODECS[attributes & 7], "time_type": "append" if attributes & 8 else "create", "control": bool(attributes & 32),
                 "first_time": first_time, "max_time": max_time, "pid": pid, "epoch": pepoch, "seq": seq,
                 "crc": "right" if crc == crc32c(whole[21:]) else "wrong", "head": whole[61:77].hex()}
        batch["keys"], batch["values"] = keys_and_values_of(payload, count) if payload is not None else (None, None)
        out.append(batch)
        at += 12 + length
    return out


def signed(reader):
    raw = reader.uvarint()
    return raw >> 1 ^ -(raw & 1)


def text_of(record):
    size = signed(record)
    return None if size < 0 else record.take(size).decode("latin1")


def keys_and_values_of(payload, count):
    reader, keys, values = Reader(payload), [], []
    for _ in range(count):
        record = Reader(reader.take(signed(reader)))
        record.take(1), signed(record), signed(record)
        keys.append(text_of(record))
        values.append(text_of(record))
    return keys, values

"""Reads HdrHistogram's V2 encoding, as bench/drivers writes it and every HdrHistogram tool does; adds and asks."""

import base64
import math
import struct
import zlib

PLAIN, DEFLATED = 0x1C849303, 0x1C849304


def _header(data, cookie):
    found, size = struct.unpack_from(">II", data)
    if found & ~0xF0 != cookie:
        raise ValueError(f"not an HdrHistogram (V2): it begins with {found:#x}")
    return size


def _zigzags(data):
    at = 0
    while at < len(data):
        value = shift = 0
        for number in range(9):
            byte = data[at]
            at += 1
            value |= (byte if number == 8 else byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield (value >> 1) ^ -(value & 1)


class Histogram:
    """{highest equivalent value: count}, in the unit that was recorded (nanoseconds)."""

    def __init__(self, counts=None):
        self.counts = counts or {}

    @classmethod
    def decode(cls, text):
        data = base64.b64decode(text, validate=True)
        size = _header(data, DEFLATED)
        plain = zlib.decompress(data[8:8 + size])
        length = _header(plain, PLAIN)
        digits, lowest = struct.unpack_from(">Iq", plain, 12)
        if lowest != 1:
            raise ValueError(f"a lowest value of {lowest}; 1 is what the drivers write")
        half = 1 << ((2 * 10 ** digits - 1).bit_length() - 1)
        counts, index = {}, 0
        for number in _zigzags(plain[40:40 + length]):
            if number < 0:
                index -= number
                continue
            bucket, sub = (0, index) if index < 2 * half else (index // half - 1, index % half + half)
            counts[((sub + 1) << bucket) - 1] = number
            index += 1
        return cls(counts)

    def __add__(self, other):
        counts = dict(self.counts)
        for value, count in other.counts.items():
            counts[value] = counts.get(value, 0) + count
        return Histogram(counts)

    def total(self):
        return sum(self.counts.values())

    def at(self, *percentiles):
        """The value that so many hundredths of all do not exceed, for each (rising)."""
        wanted, out, seen, last = list(percentiles), [], 0, 0
        total = self.total()
        for value in sorted(self.counts):
            seen, last = seen + self.counts[value], value
            # One step down, as HdrHistogram does: 99.9 % of 1000 are 999, not what rounding makes of it.
            while wanted and seen >= math.nextafter(wanted[0], 0) * total / 100:
                out.append(value)
                wanted.pop(0)
        return out + [last] * len(wanted)


def merged(texts):
    total = Histogram()
    for text in texts:
        total += Histogram.decode(text)
    return total

"""What is done to good files: bytes, lines, numbers and values put in, taken out, doubled or changed; and packing."""

from __future__ import annotations

import gzip
import json
import re
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import zstandard

PIECES = [b"", b"\n", b"\r", b"\r\n", b",", b'"', b'""', b"\0", b"\x01", b"\xff", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"-", b"-1",
          b"NaN", b"Infinity", b"1e400", b"1e-400", b"1e99999999999999999999", b"9" * 30, b"9" * 5000, b"2147483648", b"{",
          b"}", b"[", b"]", b"[" * 3000, b"{}", b"[]", b"null", b"true", b'"\\ud800"', b"\\", b"#", b"# hash_ids: 0", b";",
          b"\t", b" ", b"0", b"+", b".", b"2024-02-30 00:00:00", b"+99:99", "\u0663".encode(), b"=", b"'", b"'''", b"[[a]]",
          b"x = 1\n", b"\x1f\x8b", b"\x1f", b"\x28\xb5\x2f\xfd", b"hash_ids", b"session_id", b"\x1b[31m", "\u202e".encode()]
NUMBERS = ["0", "-1", "1", "2", "-0", "0.5", "1.5", "7", "64", "1e3", "1e300", "1e308", "1e400", "-1e400", "1e-400", "5e-324",
           "nan", "inf", "-inf", "NaN", "Infinity", *(str(2**k + d) for k in (31, 32, 53, 63, 64) for d in (-1, 0, 1)),
           str(-2**63 - 1), "1000", "100000", str(10**9), str(10**12), str(10**15), str(10**18), "9" * 30, "9" * 400,
           "9" * 5000, "0x10", "1_000", "\u0663", "007", "+5", "1.", ".5", "true", "", "1e99999999999"]
VALUES: list[Any] = [None, True, False, -1, 0, 1, 2, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**400, 1.5, 1e300, 5e-324, "",
                     "x", "\ud800", "1" * 100, "a\nb", [], {}, [1, 1], [None], {"a": 1}, [[[[]]]], "-1", "nan", 12.0, 10**9,
                     10**12, "\0", "../x", [10**6] * 5, [1.5], ["x"], {"kind": "full"}]
RAW = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "9" * 5000, "-" + "9" * 4400, "1e999999999999999999999",
       "[" * 3000, '{"a":' * 3000, '"\\ud800"', '"\\u0000"', "truth", "'x'", "", "01", '{"a":1,"a":2}', "1.0", "1E5", "-0",
       "-0.0"]
MILD = (0, 1, 2, 3, 5, 7, 16, 17, 33, 64, 100, 512, 1000, 4096, 10**5, 10**6)
WORDS = [b"3", b"0", b"-1", b"2.5", b"1e300", b"1e999", b"nan", b"inf", b"true", b"false", b'""', b'"x"', b"'auto'", b"[]",
         b"[1, 2]", b"[[1]]", b"[1, 1.0, true]", b"{}", b"{from = 1, to = 1e300, step = 1}", b"{from = 1, to = 2, steps = 3}",
         b"{kind = 'constant'}", b"9" * 26, b"9" * 400, b"9" * 5000, b"9223372036854775807", b"1979-05-27T07:32:00Z", b"0x1F",
         b"'''", b"'\\u0000'", b'"\\u0000"', b"", b"'constant:value=3'", b"'system:tokens=99999999'", b"'poisson:rate=1e9'",
         b"'-'", b"[0.1, 0.2]", b"'L4'", b"100000000"]
MARK = "@raw@"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def mutated(draw: Random, data: bytes) -> bytes:
    """One to three things done to a file; what is JSON mostly stays so."""
    if draw.random() < 0.3:                            # numbers that are not odd: what is behind the readers has its turn
        return _NUMBER.sub(lambda found: str(draw.choice(MILD)) if draw.random() < 0.1 else found[0],
                           data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        way = draw.choice(WAYS)
        data = way(draw, data)
    return data


def damaged(draw: Random, data: bytes) -> bytes:
    """A few bytes put in, taken out or doubled."""
    for _ in range(draw.randint(1, 3)):
        at, to = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
        to = min(to, at + draw.randrange(12))
        match draw.randrange(5):
            case 0:
                data = data[:at] + draw.choice(PIECES) + data[at:]
            case 1:
                data = data[:at] + draw.choice(PIECES) + data[to:]
            case 2:
                data = data[:at] + data[to:]
            case 3:
                data = data[:at] + data[at:to] * 2 + data[to:]
            case _:
                data = data[:at]
    return data


def renumbered(draw: Random, data: bytes) -> bytes:
    """Another number in place of one, or of two."""
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(draw.randint(1, 2)):
        places = list(_NUMBER.finditer(text))
        if places:
            place = draw.choice(places)
            other = draw.choice(NUMBERS) if draw.random() < 0.4 else str(draw.choice(MILD))
            text = text[:place.start()] + other + text[place.end():]
    return text.encode("utf-8", "surrogateescape")


def relined(draw: Random, data: bytes) -> bytes:
    """Lines taken out, doubled, changed about, cut, run together or very long."""
    lines = data.split(b"\n")
    for _ in range(draw.randint(1, 2)):
        at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(7):
            case 0:
                lines[at:at + 1] = []
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = lines[at][:draw.randint(0, len(lines[at]))]
            case 4:
                lines[at:at + 2] = [b"".join(lines[at:at + 2])]
            case 5:
                lines[at] += draw.choice((b" " * 70_000, b"x" * 70_000, b",1" * 20_000))
            case _:
                lines.insert(at, draw.choice(PIECES))
        lines = lines or [b""]
    return b"\n".join(lines)


def reencoded(draw: Random, data: bytes) -> bytes:
    """Other line ends, another encoding, marks and what is no text."""
    text = data.decode("utf-8", "replace")
    return draw.choice((
        lambda: b"\xef\xbb\xbf" + data, lambda: data.replace(b"\n", b"\r\n"), lambda: data.replace(b"\n", b"\r"),
        lambda: text.encode("utf-16"), lambda: text.encode("utf-16-le"), lambda: data + b"\0" * 5, lambda: data[::-1],
        lambda: b"\n\n" + data, lambda: data * 2, lambda: data.upper(), lambda: data.replace(b'"', b"'"),
        lambda: data.replace(b",", b";"), lambda: data.rstrip(b"\n}])"), lambda: b""))()


def revalued(draw: Random, data: bytes) -> bytes:
    """JSON, or a line of it, with another value, name or entry somewhere; any other text with another field."""
    try:
        found, lines, at = json.loads(data), None, 0
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
        at = draw.randrange(len(lines))
        try:
            found = json.loads(lines[at])
        except (ValueError, RecursionError):
            key, sign, _ = lines[at].partition(b"=")
            if sign and draw.random() < 0.8:
                lines[at] = key + b"= " + draw.choice(WORDS)
                return b"\n".join(lines)
            fields = lines[at].split(b",")
            fields[draw.randrange(len(fields))] = draw.choice(PIECES)
            lines[at] = b",".join(fields)
            return b"\n".join(lines)
    raw: list[str] = []
    for _ in range(draw.choice((1, 1, 2))):
        found = _elsewhere(draw, found, raw)
    made = json.dumps(found)
    for token in raw:
        made = made.replace(f'"{MARK}"', token, 1)
    if lines is None:
        return made.encode()
    lines[at] = made.encode()
    return b"\n".join(lines)


def _elsewhere(draw: Random, value: Any, raw: list[str]) -> Any:
    """The value with something changed in it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or draw.random() < 0.1:
        return _other(draw, value, raw)
    key = draw.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
        value[key] = _elsewhere(draw, value[key], raw)
        return value
    match draw.randrange(12):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[draw.choice(("x", "", "kind", "id", draw.choice(keys)))] = value.pop(key)
        case 1 | 2 if isinstance(value, list):
            value.insert(key, deepcopy(value[key]))
        case 2:
            value[draw.choice(keys)] = deepcopy(value[key])
        case _:
            value[key] = _other(draw, value[key], raw)
    return value


def _other(draw: Random, value: Any, raw: list[str]) -> Any:
    """Another value: of another kind, a near one, or a piece of text that JSON may not even know."""
    if type(value) is int and draw.random() < 0.4:
        return draw.choice((*MILD, value + 1, value - 1, 2 * value))
    match draw.randrange(6):
        case 0:
            raw.append(draw.choice(RAW))
            return MARK
        case 1 if isinstance(value, int | float) and not isinstance(value, bool):
            return draw.choice((value + 1, value - 1, -value, value * 1000, value * 10**9, min(value, 10**300) * 1.0,
                                str(value), [value]))
        case 2 if isinstance(value, list):
            return draw.choice((value * 3, value[::-1], value[:1], dict.fromkeys(map(str, value[:5]), 1), str(value)))
        case _:
            return deepcopy(draw.choice(VALUES))


WAYS = (*[damaged] * 3, *[renumbered] * 6, *[relined] * 2, *[revalued] * 8, reencoded)


def packed(draw: Random, data: bytes) -> bytes:
    """Plain mostly, else packed and perhaps damaged after that; seldom a bomb."""
    if draw.random() < 0.002:
        return bomb(draw.choice(("gzip", "zstd")), data)
    pack = draw.choice((*[bytes] * 16, gzip.compress, zstandard.compress))
    made = pack(data)
    if pack is bytes or draw.random() < 0.5:
        return made
    return draw.choice((lambda: damaged(draw, made), lambda: made[:draw.randint(1, len(made))], lambda: made + b"junk",
                        lambda: made * 2))()


def bomb(kind: str, data: bytes) -> bytes:
    """A good beginning, and then far more than the file is long."""
    return (gzip.compress(data) if kind == "gzip" else zstandard.compress(data)) + _zeros(kind)


@cache
def _zeros(kind: str) -> bytes:
    block = bytes([32]) * (16 << 20)
    return (gzip.compress(block) if kind == "gzip" else zstandard.compress(block)) * 64

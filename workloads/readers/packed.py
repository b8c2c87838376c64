"""The bytes of a file as they were before it was packed: plain, gzip or zstandard, told apart by the first bytes.

Everything is read in pieces, so a file of any size takes little memory, and one that unpacks to absurdly more than it
is (a decompression bomb) is refused before it takes any.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BufferedReader, RawIOBase
from typing import Any, Protocol, cast

PIECE_BYTES = 1 << 20
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
ZSTD_BITE = 1 << 11                                    # packed bytes at a time: they can give 32,768 times as many
BOMB_BYTES, BOMB_RATIO = 1 << 26, 50                   # no trace packs so well, and small files do no harm
STDIN = "-"


class Damaged(Exception):
    """Packed data that cannot be unpacked; the message ends the sentence 'the gzip data is'."""


class _Reads(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Counted:
    """A file that counts the bytes read from it and tells somebody."""

    def __init__(self, raw: BufferedReader, tick: Callable[[int], None]) -> None:
        self._raw, self._tick = raw, tick
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read1(size) if size > 0 else self._raw.read(size)
        self.count += len(data)
        self._tick(len(data))
        return data


def pieces(path: str, tick: Callable[[int], None]) -> Iterator[bytes]:
    """The unpacked bytes in pieces; ``-`` is standard input.

    Raises
    ------
    OSError
        If it cannot be opened or read.
    Damaged
        If packed data ends early, is broken, or is a decompression bomb.
    """
    with ExitStack() as stack:
        raw = _stdin() if path == STDIN else stack.enter_context(open(path, "rb"))
        first = raw.peek(4)
        counted = _Counted(raw, tick)
        if first.startswith(GZIP_MAGIC):
            yield from _guarded(_gunzip(counted), counted, "gzip")
        elif first.startswith(ZSTD_MAGIC):
            yield from _guarded(_unzstd(counted), counted, "zstd")
        else:
            while piece := counted.read(PIECE_BYTES):
                yield piece


def packed_bytes(path: str) -> int | None:
    """The size of the file as it lies there, for a progress bar; None where it has none (standard input, a pipe)."""
    try:
        return os.path.getsize(path) if path != STDIN and os.path.isfile(path) else None
    except (OSError, ValueError):
        return None


def _stdin() -> BufferedReader:
    if sys.stdin is None:
        raise OSError(9, "standard input is closed")
    stream = sys.stdin.buffer
    return stream if isinstance(stream, BufferedReader) else BufferedReader(cast(RawIOBase, stream))


def _guarded(unpacked: Iterator[bytes], counted: _Counted, name: str) -> Iterator[bytes]:
    total = 0
    try:
        for piece in unpacked:
            total += len(piece)
            if total > BOMB_BYTES and total > BOMB_RATIO * counted.count:
                raise Damaged(f"the {name} data unpacks to over {BOMB_RATIO} times its size: refused as a decompression bomb "
                              "(unpack it first if it is meant)")
            yield piece
    except EOFError:
        raise Damaged(f"the {name} data is cut short here") from None


def _gunzip(counted: _Reads) -> Iterator[bytes]:
    import gzip  # here, and not at the head: most traces are not packed
    import zlib
    try:
        with gzip.GzipFile(fileobj=counted) as stream:  # type: ignore[call-overload]
            while piece := stream.read1(PIECE_BYTES):
                yield piece
    except (gzip.BadGzipFile, zlib.error):
        raise Damaged("the gzip data is damaged here") from None


def _unzstd(counted: _Reads) -> Iterator[bytes]:
    """Frame after frame, in small bites: the object that unpacks a bite cannot be told to stop in the middle."""
    import zstandard
    frame: Any = None
    data = b""
    while True:
        data = data or counted.read(ZSTD_BITE)
        if not data:
            if frame is not None:
                raise EOFError
            return
        if frame is None:
            frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            piece = frame.decompress(data)
        except zstandard.ZstdError:
            raise Damaged("the zstd data is damaged here") from None
        data = b""
        if frame.eof:
            frame, data = None, frame.unused_data
        for start in range(0, len(piece), PIECE_BYTES):
            yield piece[start:start + PIECE_BYTES]

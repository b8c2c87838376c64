"""Bytes of a trace file, as blocks of whole lines.

Owns the limits on memory and the line numbers; `packed` opens and unpacks. A file is read once, from front to back, so
a pipe works too.

    file   line 1 | line 2 | line 3 | line 4 | line 5
    block  [1: lines 1, 2, 3        ] [4: lines 4, 5 ]      about 1 MiB each, numbered by their first line
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from workloads.messages import complaint, reading_failed, show_path
from workloads.readers.packed import STDIN, Damaged, pieces
from workloads.readers.read_options import ReadOptions
from workloads.request import InputError

BLOCK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 64 << 20  # a session may be one object on one line; it bounds the memory a hostile file can ask for
LARGEST_DOCUMENT_BYTES = 256 << 20
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Block(NamedTuple):
    """Whole lines of a file; ``line`` is the number of the first one, counted from 1."""

    line: int
    data: bytes


@dataclass(frozen=True)
class Source:
    """A file being read: its path as the user gave it, the first block, those still to come, and how to read it."""

    path: str
    first: Block
    rest: Iterator[Block]
    options: ReadOptions = field(default_factory=ReadOptions)

    def blocks(self) -> Iterator[Block]:
        """All blocks; to be called once."""
        return itertools.chain((self.first,), self.rest)


def open_source(path: str, options: ReadOptions | None = None) -> Source:
    """Start to read a file.

    Parameters
    ----------
    path : str
        A text file, plain or packed with gzip or zstandard; ``-`` is standard input.
    options : ReadOptions, optional

    Returns
    -------
    Source
        With at least one line that is not blank in its first block.

    Raises
    ------
    InputError
        If it cannot be opened, is empty, or is not text; later blocks raise it too.
    """
    options = ReadOptions() if options is None else options
    shown = "standard input" if path == STDIN else path
    blocks = _checked_blocks(shown, _cut(shown, _readable(path, shown, options)))
    first = next(blocks, None)
    if first is None or not first.data.strip():
        raise InputError(f"{show_path(shown)}: the file is empty")
    return Source(shown, first, blocks, options)


def beside(path: str) -> str | None:
    """A file that belongs to another, as it is or packed; None if there is none."""
    return next((path + packed for packed in ("", ".gz", ".zst") if os.path.isfile(path + packed)), None)


def whole_text(source: Source) -> str:
    """All of a file that is one document.

    Raises
    ------
    InputError
        If it is longer than 256 MiB, or not UTF-8.
    """
    text, size = [], 0
    for block in source.blocks():
        size += len(block.data)
        if size > LARGEST_DOCUMENT_BYTES:
            raise complaint(source.path, block.line, f"the document is longer than {LARGEST_DOCUMENT_BYTES >> 20} MiB")
        text.append(decode(source.path, block))
    return "".join(text)


def first_line(source: Source) -> tuple[int, str, Block]:
    """The first line that is not blank: its number, its text, and the rest of the first block."""
    number, data = source.first
    blank = len(data) - len(data.lstrip())
    start = data.rfind(b"\n", 0, blank) + 1
    head, _, rest = data[start:].partition(b"\n")
    line = number + data.count(b"\n", 0, start)
    text = decode(source.path, Block(line, head)).rstrip("\r")
    if any(ord(letter) < 32 and letter != "\t" for letter in text):
        raise complaint(source.path, line, "not a text file: the line has control characters")
    return line, text, Block(line + 1, rest)


def decode(path: str, block: Block) -> str:
    """The text of a block.

    Raises
    ------
    InputError
        If it is not UTF-8; names the line.
    """
    try:
        return block.data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = block.line + block.data.count(b"\n", 0, error.start)
        message = f"not text in UTF-8: byte 0x{block.data[error.start]:02x}"
        raise complaint(path, line, message) from None


def _checked_blocks(path: str, blocks: Iterator[Block]) -> Iterator[Block]:
    """Blocks, with everything that shows a file is no text turned into an error."""
    for number, block in enumerate(blocks):
        if number == 0 and block.data.startswith(UTF16_MARKS):
            raise complaint(path, 1, "not text in UTF-8: it begins like UTF-16; convert it first")
        if b"\0" in block.data:
            line = block.line + block.data.count(b"\n", 0, block.data.index(b"\0"))
            raise complaint(path, line, "not a text file: the line has a NUL byte")
        yield Block(block.line, block.data.removeprefix(UTF8_MARK)) if number == 0 else block


def _cut(path: str, bytes_of_file: Iterator[bytes]) -> Iterator[Block]:
    """Cut what the file yields at line ends; the last block may lack its line end."""
    line, held, searched = 1, bytearray(), 0
    while True:
        try:
            piece = next(bytes_of_file, b"")
        except Damaged as error:
            raise complaint(path, line + held.count(b"\n"), str(error)) from None
        held += piece
        if piece and len(held) < BLOCK_BYTES:
            continue
        end = held.rfind(b"\n", searched) + 1 if piece else len(held)
        _refuse_long_line(path, line, held)
        if end:
            yield Block(line, bytes(held[:end]))
            line += held.count(b"\n", 0, end)
            del held[:end]
        if not piece:
            return
        searched = len(held)  # what is left has no line end: do not search it again


def _refuse_long_line(path: str, line: int, held: bytearray) -> None:
    end = held.find(b"\n", 0, LONGEST_LINE_BYTES + 1)
    if end < 0 and len(held) > LONGEST_LINE_BYTES:
        raise complaint(path, line, f"the line is longer than {LONGEST_LINE_BYTES >> 20} MiB")


def _readable(path: str, shown: str, options: ReadOptions) -> Iterator[bytes]:
    """What single reads give, so that no line before a fault in packed data is lost."""
    try:
        yield from pieces(path, options.tick)
    except OSError as error:
        raise reading_failed(shown, error) from None
    except ValueError as error:  # a NUL in the path itself
        raise InputError(f"{show_path(shown)}: {error}") from None

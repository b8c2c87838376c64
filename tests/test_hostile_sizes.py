"""Files that are too much: bombs, endless lines, endless entries. One line, and little memory."""

from __future__ import annotations

import gzip
import os
import re
import threading
import tracemalloc
from types import SimpleNamespace

import pytest
import zstandard
from format_samples import BY_NAME, SAMPLES, complaint, put

from workloads.readers import json_document, read_rows
from workloads.readers.json_lines import DECODER
from workloads.request import InputError

MIB = 1 << 20
every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def peak_mib(function):
    tracemalloc.start()
    try:
        return function(), tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@every
def test_a_line_longer_than_any(tmp_path, capsys, sample, monkeypatch):
    monkeypatch.setattr("workloads.readers.source.LONGEST_LINE_BYTES", 1 << 16)
    monkeypatch.setattr("workloads.readers.source.BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr("workloads.readers.packed.PIECE_BYTES", 1 << 13)
    start = sample.text.encode().rstrip() + b"\n"
    found = complaint(capsys, put(tmp_path, sample, gzip.compress(start + b"x" * (1 << 18))))
    assert found == f":{len(start.splitlines()) + 1}: the line is longer than 0 MiB"


@pytest.mark.parametrize("sample", [BY_NAME[name] for name in ("csv", "mooncake", "sharegpt")], ids=lambda sample: sample.name)
def test_a_line_of_2_gb(tmp_path, capsys, sample):
    """Through a pipe, so that nothing of it has to exist; the writer is stopped long before it is done."""
    pipe, written = tmp_path / "pipe", []
    os.mkfifo(pipe)
    start = sample.text.encode()[:-1] if sample.kind == "document" else sample.text.rstrip("\n").encode() + b"\n"

    def write():
        with open(pipe, "wb", buffering=0) as file:
            try:
                file.write(start)
                for _ in range(2048):
                    written.append(file.write(b" " * MIB if sample.kind == "document" else b"x" * MIB))
            except BrokenPipeError:
                pass

    writer = threading.Thread(target=write)
    writer.start()
    found, peak = peak_mib(lambda: complaint(capsys, pipe))
    writer.join()
    line = start.count(b"\n") + 1
    assert found == f":{line}: the line is longer than 64 MiB"
    assert sum(written) < 80 * MIB
    assert peak < 200


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
@pytest.mark.parametrize("name", ["azure-2023", "csv-lengths", "mooncake"])
def test_bombs(tmp_path, capsys, name, pack):
    sample = BY_NAME[name]
    text = sample.text.rstrip("\n").encode() + b"\n"
    row = text[text.rfind(b"\n", 0, -1) + 1:]
    block = (row[:-1] + b" " * 900 + b"\n") * (4 * MIB // (len(row) + 900))
    path = tmp_path / "x"
    if pack == "gzip":
        one = gzip.compress(block)
        path.write_bytes(gzip.compress(text) + one * 70)
    else:
        path.write_bytes(zstandard.compress(text) + zstandard.compress(block) * 70)
    assert path.stat().st_size < 4 * MIB
    says = rf":\d+: the {pack} data unpacks to over 50 times its size: refused as a decompression bomb "
    says += r"\(unpack it first if it is meant\)\Z"
    with pytest.raises(InputError, match=says):
        read_rows(path)
    if name == "azure-2023":
        assert re.match(says, complaint(capsys, path))


def test_a_bomb_takes_little_memory(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(zstandard.compress(b"prompt_tokens,output_tokens,x\n" + (b"1,1," + b"x" * 507 + b"\n") * (300 * MIB // 512)))

    def read():
        with pytest.raises(InputError, match="decompression bomb"):
            read_rows(path)

    assert peak_mib(read)[1] < 250


def test_a_long_entry_of_an_array_is_not_begun_again_for_every_block(tmp_path, monkeypatch):
    path, begun = tmp_path / "x", []
    monkeypatch.setattr(json_document, "LONGEST_LINE_BYTES", 8 * MIB)
    monkeypatch.setattr(json_document, "DECODER", SimpleNamespace(
        raw_decode=lambda text, at: begun.append(len(text) - at) or DECODER.raw_decode(text, at)))
    with path.open("w") as file:
        file.write('[{"prompt_len": 1, "output_len": 1, "x": [\n')
        for _ in range(10):
            file.write(("1," * 500 + "\n") * (MIB // 1001))
        file.write("1]}]")
    with pytest.raises(InputError, match=r"x:1: an entry is longer than 8 MiB\Z"):
        read_rows(path)
    assert sum(begun) < 3 * 10 * MIB                   # read twice over in all, not once for each block


def test_a_long_name_among_many(tmp_path):
    rows = "".join(f"{n},0,0,{n},1,4,5\n" for n in range(3000))
    path = put(tmp_path, BY_NAME["splitwise-sim"], (BY_NAME["splitwise-sim"].text.split("\n")[0] + "\n" + rows
                                                    + "x" * MIB + ",0,0,1,1,4,5\n").encode())
    rows, peak = peak_mib(lambda: read_rows(path))
    assert len(rows) == 3001
    assert peak < 100

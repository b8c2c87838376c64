"""Times and numbers are exact: against fractions, and the fast way against the slow one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.readers import fast_fields, read_trace, times
from workloads.readers.values import MOST_TOKENS, length_of_text


def seconds_trace(folder, stamps):
    path = folder / "trace.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{t},1,1\n" for t in stamps))
    return read_trace(path)


def exact_us(stamps):
    """The same by rational numbers; Python rounds those half to even."""
    exact = sorted(Fraction(stamp) for stamp in stamps)
    return [round((stamp - exact[0]) * 10**6) for stamp in exact]


@pytest.mark.parametrize(
    ("stamps", "arrival_us"),
    [
        (["0", "0.0000005", "0.0000015", "0.0000025"], [0, 0, 2, 2]),
        (["0.0000005", "0.0000010", "0.0000011"], [0, 0, 1]),  # rounded after the first is subtracted
        (["0", "0.00000050000000000000000000001"], [0, 1]),  # just over half, in the 29th digit
        (["0", "1e-06", "1.5E-6", "2.5e-06", "1e3"], [0, 1, 2, 2, 10**9]),
        (["1700000000.000001", "1700000000.000002"], [0, 1]),  # floats of this size step by 0.24 us
        (["0.1", "0.3"], [0, 200_000]),
        (["5", "5."], [0, 0]),
        (["0", "-0.0"], [0, 0]),
        (["0", "1000000000000"], [0, 10**18]),
    ],
)
def test_seconds(tmp_path, stamps, arrival_us):
    assert seconds_trace(tmp_path, stamps).arrival_us.tolist() == arrival_us
    assert exact_us([stamp.rstrip(".") for stamp in stamps]) == arrival_us


def test_blocks_of_both_units_join_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.readers.source.BLOCK_BYTES", 40)
    stamps = [f"{n}.0000005" for n in range(30)] + ["30.00000050000000000000000001"]
    assert seconds_trace(tmp_path, stamps).arrival_us.tolist() == exact_us(stamps)


def test_milliseconds_with_a_point(tmp_path):
    row = '{"timestamp": %s, "input_length": 1, "output_length": 1, "hash_ids": [0]}\n'
    path = tmp_path / "trace"
    path.write_text("".join(row % stamp for stamp in ("1.0005", "1.001", "1.002", "1.0025", "7")))
    assert read_trace(path).arrival_us.tolist() == [0, 0, 2, 2, 6000]


def test_halves_of_a_microsecond_in_calendar_time(tmp_path):
    path = tmp_path / "trace"
    stamps = ["46.6805900", "46.6805905", "46.6805915", "46.6805916"]
    rows = "".join(f"2023-11-16 18:15:{stamp},1,1\n" for stamp in stamps)
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert read_trace(path).arrival_us.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("text", ["2024-02-29 23:59:59.999999999", "1970-01-01 00:00:00", "2000-12-31T12:34:56.5"])
def test_calendar_time_against_numpy(text):
    assert times.iso_ns(text) == int(np.datetime64(text.replace(" ", "T"), "ns").astype(np.int64))
    assert times.iso_ns(text + "+02:30") == times.iso_ns(text) - 9000 * 10**9
    assert times.iso_ns(text + "-02:30") == times.iso_ns(text) + 9000 * 10**9
    assert times.iso_ns(text + "Z") == times.iso_ns(text)


def test_the_latest_time_and_no_later():
    assert times.fine_stamp("1e12") == 10**52
    assert times.fine_stamp("1e15", unit_exponent=-3) == 10**52
    with pytest.raises(ValueError, match="over 1e12 seconds"):
        times.fine_stamp("1000000000000.0000001")


def fields_of(texts):
    """One column of a block."""
    columns = fast_fields.split_block("".join(f"{text},x\n" for text in texts).encode(), 2)
    return None if columns is None else columns[0]


def slow(convert, texts):
    """What the slow way says, None where it refuses."""
    try:
        return [convert(text) for text in texts]
    except ValueError:
        return None


def agrees(fast, slow_values):
    """The fast way may pass (None), but never says anything else than the slow way."""
    return fast is None or fast.tolist() == slow_values


NUMBERS = st.one_of(
    st.integers(-5, 2**33).map(str),
    st.text(alphabet="0123456789.-+e:٣ ", min_size=0, max_size=12),
    st.sampled_from([str(MOST_TOKENS), str(MOST_TOKENS + 1), "007", "", "1e400"]),
)
SECONDS = st.one_of(
    st.decimals(0, 10**10, allow_nan=False, allow_infinity=False).map(str),
    st.tuples(st.integers(0, 10**10), st.integers(0, 10**9)).map(lambda pair: f"{pair[0]}.{pair[1]:09d}"[:-1]),
    st.text(alphabet="0123456789.", min_size=1, max_size=14),
)
CALENDAR = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat(sep=" ")),
    st.datetimes().map(lambda moment: moment.isoformat() + "+00:00"),
    st.from_regex(r"\A[12]\d{3}-[01]\d-[0-3]\d [0-2]\d:[0-6]\d:[0-6]\d(\.\d{1,10})?(\+00:00|Z)?\Z"),
)


@given(st.lists(NUMBERS, min_size=1, max_size=4))
@settings(deadline=None, derandomize=True)
def test_fast_lengths_agree(texts):
    fields = fields_of(texts)
    assert fields is None or agrees(fast_fields.lengths(fields), slow(length_of_text, texts))


@given(st.lists(SECONDS, min_size=1, max_size=4))
@settings(deadline=None, derandomize=True)
def test_fast_seconds_agree(texts):
    fine = slow(times.fine_stamp, texts)
    nanoseconds = None if fine is None else [stamp // times.FINE_PER_NS for stamp in fine]
    assert agrees(fast_fields.nanoseconds(fields_of(texts)), nanoseconds)


@given(st.lists(CALENDAR, min_size=1, max_size=4))
@settings(deadline=None, derandomize=True)
def test_fast_calendar_times_agree(texts):
    assert agrees(fast_fields.iso_ns(fields_of(texts)), slow(times.iso_ns, texts))


@pytest.mark.parametrize(
    ("fast", "texts"),
    [
        (fast_fields.lengths, ["1", "374", "2147483648", "0"]),
        (fast_fields.nanoseconds, ["0.0", "4.314579", "12", "1700000000.123456789"]),
        (fast_fields.iso_ns, ["2023-11-16 18:15:46.6805900", "2024-05-10 00:00:00+00:00", "2024-02-29T23:59:59.1"]),
    ],
)
def test_plain_fields_take_the_fast_way(fast, texts):
    assert fast(fields_of(texts)) is not None

"""Text to SI numbers and back, by hand-worked values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.errors import InvalidInput
from placewright.units import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_bytes_per_second,
    parse_flops_per_second,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5 us", 5e-6), ("5us", 5e-6), ("3 µs", 3e-6), ("7 ns", 7e-9), ("1.5 h", 5400.0), ("2m", 120.0), (" .5 s ", 0.5)],
)
def test_seconds_are_the_nearest_double(text: str, seconds: float) -> None:
    """Prefixes are exact in decimal: '5 us' is the double that the literal 5e-6 is, not 5 * 1e-6 rounded twice."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("1 KiB", 1024), ("1 kB", 1000), ("1KB", 1000), ("0.5 TiB", 2**39), ("3 PB", 3 * 10**15), ("2e3", 2000), ("0", 0)],
)
def test_binary_and_decimal_bytes(text: str, size: int) -> None:
    """KiB is 2**10, kB is 10**3, a bare number is bytes."""
    assert parse_bytes(text) == size


def test_bits_are_an_eighth_of_bytes() -> None:
    """8 Gb/s, 8 Gbit/s and 1 GB/s are the same; 1 GiB/s is 2**30."""
    assert parse_bytes_per_second("8 Gbit/s") == parse_bytes_per_second("8 Gb/s") == 1e9
    assert parse_bytes_per_second("1 GiB/s") == 2.0**30


def test_operations_of_integers_count_like_flops() -> None:
    """TOP/s, TOPS, TFLOPS and TFLOP/s are all 10**12 a second."""
    assert {parse_flops_per_second(f"2 {u}") for u in ("TOP/s", "TOPS", "TFLOPS", "TFLOP/s")} == {2e12}


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("", "is not a number with a unit"),
        ("GiB", "is not a number with a unit"),
        ("nan GiB", "is not a number with a unit"),
        ("1 2 GiB", "is not a number with a unit"),
        ("1 gib", "has the unknown unit 'gib'"),
        ("1 GB/s", "has the unknown unit 'GB/s'"),
        ("-1 GiB", "is not a number of at least 0"),
        (-1, "is not a number of at least 0"),
        (math.nan, "is not a number of at least 0"),
        (math.inf, "is infinite; leave it out for no limit"),
        ("1e999999999999999999999 B", "is infinite; leave it out for no limit"),
        (True, "is neither a number nor text"),
        (None, "is neither a number nor text"),
        ([1], "is neither a number nor text"),
    ],
)
def test_what_is_no_size_is_named(value: object, complaint: str) -> None:
    """Thing, value and what to write stand in one line."""
    with pytest.raises(InvalidInput) as caught:
        parse_bytes(value, "memory of 'gpu0'")
    assert str(caught.value).startswith(f"memory of 'gpu0' {value!r} {complaint}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9996, "1 s"),
        (0.9994, "999 ms"),
        (1e-9, "1 ns"),
        (1234.5, "1234 s"),
        (math.inf, "inf s"),
        (1.004e-3, "1 ms"),
        (2.5e-12, "0.0025 ns"),
    ],
)
def test_seconds_as_text(seconds: float, text: str) -> None:
    """Three digits, the prefix that fits after rounding, whole numbers beyond three digits of seconds."""
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (2**20, "1 MiB"), (1000 * 2**40, "1000 TiB")])
def test_bytes_as_text(size: int, text: str) -> None:
    """Binary prefixes from 1024 on."""
    assert format_bytes(size) == text


@given(st.floats(1e-12, 1e6))
def test_formatted_seconds_read_back_within_three_digits(seconds: float) -> None:
    """Formatting and parsing agree to half a unit of the third digit."""
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=5.1e-3)


@given(st.integers(0, 2**52))
def test_formatted_bytes_read_back_within_three_digits(size: int) -> None:
    """The same for bytes."""
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=5.1e-3, abs=1)

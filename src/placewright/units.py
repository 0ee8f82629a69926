"""The only code that knows unit prefixes: text such as ``24 GiB``, ``12 GB/s`` or ``5 us`` to SI numbers and back."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal

from placewright.errors import InvalidInput

__all__ = [
    "format_bytes",
    "format_seconds",
    "parse_bytes",
    "parse_bytes_per_second",
    "parse_flops_per_second",
    "parse_seconds",
    "parse_share",
    "parse_tokens",
]

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"^\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d]*)\s*$")

_EXACT = Context(prec=40, traps=[])
"""More digits than a double has; what is too large becomes infinite instead of raising."""


def _split(text: str, what: str, example: str) -> tuple[str, str]:
    match = _NUMBER.match(text)
    if match is None:
        raise InvalidInput(f"{what} {text!r} is not a number with a unit; write for example {example!r}")
    return match[1], match[2]


def _scaled(value: object, units: dict[str, float], what: str, example: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidInput(f"{what} {value!r} is neither a number nor text; write for example {example!r}")
    if isinstance(value, str):
        text, unit = _split(value, what, example)
        if unit not in units:
            raise InvalidInput(f"{what} {value!r} has the unknown unit {unit!r}; write for example {example!r}")
        # In decimal arithmetic, so that '5 us' is the double nearest to 5e-6.
        number = float(_EXACT.multiply(_EXACT.create_decimal(text), Decimal(repr(units[unit]))))
    else:
        number = float(value)
    if math.isnan(number) or number < 0:
        raise InvalidInput(f"{what} {value!r} is not a number of at least 0; write for example {example!r}")
    return number


_BYTES = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()} | {"": 1.0}
_BYTES_PER_S = (
    {p + "B/s": f for p, f in (_DECIMAL | _BINARY).items()}
    | {p + "b/s": f / 8 for p, f in _DECIMAL.items()}
    | {p + "bit/s": f / 8 for p, f in _DECIMAL.items()}
    | {"": 1.0}
)
_FLOPS = (
    {p + "FLOP/s": f for p, f in _DECIMAL.items()}
    | {p + "FLOPS": f for p, f in _DECIMAL.items()}
    | {p + "OP/s": f for p, f in _DECIMAL.items()}
    | {p + "OPS": f for p, f in _DECIMAL.items()}
    | {"": 1.0}
)


def parse_bytes(value: object, what: str = "size") -> int:
    """Bytes of ``24 GiB`` (2**30), ``24 GB`` (10**9), or a bare number of bytes.

    Raises
    ------
    InvalidInput
        If the value is negative, NaN, infinite or has no known unit.

    Examples
    --------
    >>> parse_bytes("1.5 KiB"), parse_bytes("2 GB"), parse_bytes(7)
    (1536, 2000000000, 7)
    """
    number = _scaled(value, _BYTES, what, "24 GiB")
    if math.isinf(number):
        raise InvalidInput(f"{what} {value!r} is infinite; leave it out for no limit")
    return round(number)


def parse_bytes_per_second(value: object, what: str = "bandwidth") -> float:
    """Bytes per second of ``12 GB/s``, ``2.5 Gb/s`` (bits), or a bare number.

    Examples
    --------
    >>> parse_bytes_per_second("12 GB/s"), parse_bytes_per_second("8 Gb/s")
    (12000000000.0, 1000000000.0)
    """
    return _scaled(value, _BYTES_PER_S, what, "12 GB/s")


def parse_flops_per_second(value: object, what: str = "peak") -> float:
    """FLOP/s of ``1.2 TFLOP/s``, or a bare number.

    Examples
    --------
    >>> parse_flops_per_second("35.6 TFLOP/s")
    35600000000000.0
    """
    return _scaled(value, _FLOPS, what, "1.2 TFLOP/s")


def parse_seconds(value: object, what: str = "time", example: str = "5 us") -> float:
    """Seconds of ``5 us``, ``60s``, ``2 min``, or a bare number of seconds; ``example`` stands in error messages.

    Examples
    --------
    >>> parse_seconds("250 ms"), parse_seconds("2 min"), parse_seconds(3)
    (0.25, 120.0, 3.0)
    """
    return _scaled(value, {**_SECONDS, "": 1.0}, what, example)


_TOKENS = {"": 1.0, "k": 1024.0, "K": 1024.0, "M": 1024.0**2}


def parse_tokens(value: object, what: str = "tokens") -> int:
    """Count of ``2k`` (2,048), ``1M`` (1,048,576), or a bare number of tokens: contexts come in powers of two.

    Raises
    ------
    InvalidInput
        If it is below 1, above 2^31, or no whole number.

    Examples
    --------
    >>> parse_tokens("32k"), parse_tokens("1.5k"), parse_tokens(100)
    (32768, 1536, 100)
    """
    number = _scaled(value, _TOKENS, what, "32k")
    if not 1 <= number <= 2**31 or number != round(number):
        raise InvalidInput(f"{what} {value!r} is not a whole number from 1 to 2^31; write for example '32k' for 32,768")
    return round(number)


def parse_share(value: object, what: str = "share") -> float:
    """Share of ``5%`` or ``0.05``.

    Examples
    --------
    >>> parse_share("5%"), parse_share("0.25")
    (0.05, 0.25)
    """
    return _scaled(value, {"%": 0.01, "": 1.0}, what, "5%")


def format_seconds(seconds: float) -> str:
    """Three significant digits with a fitting unit.

    Examples
    --------
    >>> format_seconds(0.01234), format_seconds(5e-6), format_seconds(0.0), format_seconds(90.0)
    ('12.3 ms', '5 us', '0 s', '90 s')
    """
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:g} s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= factor * 0.9995:
            return (
                f"{seconds / factor:.3g} {unit}" if abs(seconds) / factor < 999.5 else f"{seconds / factor:.0f} {unit}"
            )
    return f"{seconds / 1e-9:.3g} ns"


def format_bytes(size: float) -> str:
    """Three significant digits with a binary prefix.

    Examples
    --------
    >>> format_bytes(24 * 2**30), format_bytes(1536), format_bytes(12)
    ('24 GiB', '1.5 KiB', '12 B')
    """
    for unit, factor in (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if abs(size) >= factor:
            return f"{size / factor:.3g} {unit}" if size / factor < 999.5 else f"{size / factor:.0f} {unit}"
    return f"{size:.0f} B"

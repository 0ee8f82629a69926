"""Names with ranges."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from placewright.errors import InvalidInput
from placewright.io.name_ranges import escape, escape_slots, expand, fill, parse_numbers


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cpu", ["cpu"]),
        ("gpu[0-2,8]", ["gpu0", "gpu1", "gpu2", "gpu8"]),
        ("gpu[ 0]", ["gpu[ 0]"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[0-1]g[1-2]!", ["n0g1!", "n0g2!", "n1g1!", "n1g2!"]),
        ("a[[0]b[1]", ["a[0]b1"]),
        ("x[]y[a-b]", ["x[]y[a-b]"]),
    ],
)
def test_ranges_expand_in_order(text, names):
    """The last range runs fastest; leading zeros stay; what is no range stays as it is."""
    assert [name for name, _ in expand(text)] == names


@pytest.mark.parametrize("text", ["g[0-4096]", "g[0-999999999999]", "g[0-99]h[0-99]", "g[0-9999999999999999999,1]"])
def test_too_many_names_are_refused_before_they_are_made(text):
    """The product of the ranges is bounded, whatever they are."""
    with pytest.raises(InvalidInput, match="stands for more than 4096 names; use shorter ranges"):
        expand(text)
    assert len(expand("g[0-4095]")) == 4096


def test_a_range_that_goes_backwards_is_refused():
    """The message gives it the right way round."""
    with pytest.raises(InvalidInput, match=r"goes backwards; write \[1-3\]"):
        expand("g[3-1]")


def test_slots_take_what_the_ranges_stand_at():
    """{0} is the first range, {1} the second; there must be one."""
    assert fill("a{1}b{0}{x}", ("7", "8")) == "a8b7{x}"
    with pytest.raises(InvalidInput, match="refers to range 2 of its device's name, which has 2"):
        fill("{2}", ("7", "8"))
    with pytest.raises(InvalidInput, match="refers to range"):
        fill("{99999999999}", ("7",))


def test_numbers_of_cores():
    """Spans and numbers; anything else is refused."""
    assert parse_numbers("0-2, 5") == (0, 1, 2, 5)
    for text in ("", "a", "1-", "-1", "0-99999"):
        with pytest.raises(InvalidInput):
            parse_numbers(text)


@given(st.text("ab[]{}0-1,", max_size=12))
def test_an_escaped_name_stands_for_itself(text):
    """Whatever brackets and braces a name has."""
    assert expand(escape(text)) == [(text, ())]
    assert fill(escape_slots(text), ()) == text

"""What the page draws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placewright.report.html_data import front_coded, module_groups, ranked, timeline

from .two_branches import measured, problem, solved


@given(st.lists(st.text(max_size=12), max_size=20))
def test_front_coding_is_undone_as_the_page_undoes_it(names):
    """The page keeps p UTF-16 code units of the name before; decoding so in Python gives the names back."""
    coded = front_coded(names)
    before = b""
    for p, rest, name in zip(coded["p"], coded["n"], names, strict=True):
        before = before[: 2 * p] + rest.encode("utf-16-le", "surrogatepass")
        assert before.decode("utf-16-le", "surrogatepass") == name


def test_the_ninth_group_is_gathered_under_other():
    """Eight colours: seven names by time and one for the rest."""
    names, index = ranked(list("abcdefghij"), [float(k) for k in range(10)])
    assert names == ["j", "i", "h", "g", "f", "e", "d", "other"]
    assert index == [7, 7, 7, 6, 5, 4, 3, 2, 1, 0]


def test_modules_stop_before_there_are_too_many():
    """50 blocks are too many for a key, their two parents are not."""
    names = [f"net{k % 2}.block{k}.conv" for k in range(50)]
    assert set(module_groups(names)) == {"net0", "net1"}


def test_rows_and_bars_are_those_of_the_schedule():
    """b on the slow device: it takes 4 ms there, x goes over, y comes back; times in ms."""
    example = problem()
    result, judged = solved(example, [0, 1, 0, 0])
    data = timeline(example, result, judged, [measured(example, result.plan)])
    assert [row["label"] for row in data["rows"]] == ["fast", "fast \u2192 slow", "slow", "slow \u2192 fast"]
    assert data["unit"] == "ms"
    assert data["operators"]["s"] == [0, 1.011, 1, 5.022]
    assert data["operators"]["d"] == [1, 4, 2, 1]
    assert data["transfers"]["s"] == [1, 5.011]
    assert [row["label"] for row in data["measured"]["rows"]] == ["fast", "fast waits", "slow"]
    assert data["measured"]["spans"]["v"] == [0, 2, 3, -1, 1]

"""Why a plan is as it is: every sentence against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.cluster import Device
from placewright.problem import Wish
from placewright.report.explain import (
    cheapest_crossing_s,
    explain,
    explain_devices,
    explain_gap,
    explain_single_best,
    longest_path_s,
    single_device_values,
)
from placewright.result import Result

from .two_branches import MiB, problem, solved

BASE = np.array([[0.001], [0.002], [0.002], [0.001]])


def reason(given, placement, **rest):
    result, judged = solved(given, placement, **rest)
    [sentence] = explain_devices(given, result.plan, judged, result.alternatives)
    return sentence


def test_a_slower_device_is_explained_by_its_factors_and_by_the_move_that_costs_least():
    """Twice and ten times as long; alone on it, d adds 1 ms and y, z must travel (11 us): 7.011 ms instead of 6."""
    given = problem(times=np.hstack([BASE, BASE * [[2], [10], [10], [2]]]))
    # Sinks and sources are the cheapest to move: a or d, from 1 to 2 ms; d waits 11 us more for the later of y and z.
    text = reason(given, [0, 0, 0, 0], alternatives={"only slow": 0.044})
    assert text.startswith(
        "'slow' is unused: it is slower at every operator, taking 2 to 10 times as long as the device"
    )
    assert "adds 1 ms of computing for transfers of 11 us: the whole takes 7.01 ms, 16.9% more than now" in text
    assert text.endswith("; alone it would take 44 ms.")


def test_a_move_that_helps_is_admitted():
    """With b on an equal device, b and c run together: 1 + (0.011 + 2 + 0.011) + 1 = 4.022 ms, 33% below 6 ms."""
    given = problem(times=np.hstack([BASE, BASE]))
    text = reason(given, [0, 0, 0, 0])
    assert "exactly as fast" in text
    result, judged = solved(given, [0, 1, 0, 0])
    assert judged.value_s == pytest.approx(0.004022)
    assert explain_devices(given, result.plan, judged) == []


def test_a_faster_device_that_is_unused_is_named_as_a_chance():
    """Halving b saves 1 ms of computing for 22 us of transfers, and the parallel branch even more."""
    given = problem(times=np.hstack([BASE, BASE * [[2], [0.5], [0.5], [2]]]))
    text = reason(given, [0, 0, 0, 0])
    assert "it is faster at 2 of 4 operators, where it could save 2 ms of computing" in text
    assert "saves 1 ms of computing for transfers of 22 us" in text
    assert text.endswith("less: a longer budget should find a better plan.")


def test_a_device_that_can_run_nothing_says_so():
    """Infinite processing times are no matter of speed."""
    given = problem(times=np.hstack([BASE, BASE * np.inf]))
    assert reason(given, [0, 0, 0, 0]) == "'slow' is unused: it can run none of the 4 operators."


def test_wishes_are_the_reason_where_they_forbid_all():
    """A user who pinned everything elsewhere is told so."""
    text = reason(problem(wishes=(Wish("*", "fast"),)), [0, 0, 0, 0])
    assert text == "'slow' is unused: pins and forbids keep it from all 4 operators that it could run."


def test_an_unlinked_device_is_unreachable():
    """Without a link rule no tensor can reach it."""
    text = reason(problem(linked=False), [0, 0, 0, 0])
    assert text == "'slow' is unused: no link joins it to 'fast', where the network runs."


def test_memory_that_holds_no_operator_is_given_with_need_and_limit():
    """1 MiB of weights does not fit 512 KiB."""
    text = reason(problem(Device("fast"), Device("slow", memory_bytes=MiB // 2)), [0, 0, 0, 0])
    assert text == (
        "'slow' is unused: its 512 KiB of memory hold nothing: the smallest operator that must be placed needs 1 MiB."
    )


def test_memory_that_holds_a_part_only_is_mentioned():
    """4 MiB of weights against 2 MiB of memory."""
    text = reason(problem(Device("fast"), Device("slow", memory_bytes=2 * MiB)), [0, 0, 0, 0])
    assert "the network holds 4 MiB, more than its 2 MiB" in text


def test_devices_with_one_reason_share_a_sentence():
    """A thousand equal devices must not make a thousand lines."""
    devices = [Device("fast"), *(Device(f"s{k}") for k in range(9))]
    text = reason(problem(*devices, times=np.hstack([BASE, *[BASE * 2] * 9])), [0, 0, 0, 0])
    assert text.startswith("'s0', 's1', 's2', 's3' and 5 more are unused: ")


def test_one_device_as_the_best_answer_is_said_and_explained():
    """Path a-b-d takes 4 of 6 ms (66.7%); the cheapest crossing 11 us; the median operator 1.5 ms."""
    given = problem()
    result, judged = solved(given, [0, 0, 0, 0], bound=0.006)
    assert explain_single_best(given, result) == [
        "One device alone, 'fast', is the best answer: 6 ms.",
        "On 'fast' the longest path is 4 ms of 6 ms of work (66.7%): more copies of it could save 33.3% at most, "
        "were transfers free.",
        "The cheapest crossing from 'fast' costs 11 us; its median operator takes 1.5 ms.",
    ]
    assert (
        explain(given, result, judged)[-1] == "The plan is proved optimal: no placement of this problem can be faster."
    )


def test_an_unproved_single_device_is_only_the_best_found():
    """Nobody may read a heuristic's answer as a proof."""
    given = problem()
    result, _ = solved(given, [0, 0, 0, 0], bound=0.004)
    assert explain_single_best(given, result)[0] == "One device alone, 'fast', is the best answer found: 6 ms."


def test_several_devices_are_compared_with_the_best_single_one():
    """4.022 ms on two equal devices against 6 ms on either: 33% less."""
    given = problem(times=np.hstack([BASE, BASE]))
    result, _ = solved(given, [0, 1, 0, 0])
    assert explain_single_best(given, result) == [
        "2 devices together take 4.02 ms, 33% less than 'fast' alone, the best single device (6 ms)."
    ]


def test_a_plan_worse_than_one_device_says_so():
    """Crossing for a slow operator gains nothing, and the report does not hide it."""
    given = problem()
    result, _ = solved(given, [0, 0, 0, 1])
    assert explain_single_best(given, result)[0].startswith(
        "This plan is no faster than 'fast' alone, which takes 6 ms"
    )


def test_the_values_of_single_devices_are_the_judges():
    """A sum of times, and infinite where the memory is too small: 4 MiB of weights on 2 MiB."""
    given = problem(Device("fast", memory_bytes=2 * MiB), Device("slow"))
    assert single_device_values(given) == {"fast": float("inf"), "slow": pytest.approx(0.012)}


def test_the_gap_is_worded_from_value_and_bound():
    """Value 6, bound 4.5: at most a third longer than the best, gap a quarter; the bound is named."""
    result, _ = solved(problem(), [0, 0, 0, 0], bound=0.0045, bounds={"path": 0.0045, "load": 0.003})
    assert explain_gap(result) == [
        "No plan can be below 4.5 ms (path), so this plan takes at most 33.3% longer than the best one; the gap is 25%."
    ]


def test_without_plan_or_bound_nothing_is_claimed():
    """Unknown, infeasible and unbounded results each have their sentence."""
    assert "none was proved impossible" in explain_gap(Result())[0]
    assert explain_gap(Result(infeasible="too big"))[0] == "There is no plan: too big."
    assert "no lower bound was computed" in explain_gap(solved(problem(), [0, 0, 0, 0])[0])[0]


def test_longest_path_and_crossing_follow_their_definitions():
    """a-c-d with c at 5 ms is 7 ms; what a cut costs at both ends adds to the crossing: 11 + 3 + 4 us."""
    given = problem(Device("fast", cut_overhead_s=3e-6), Device("slow", cut_overhead_s=4e-6))
    assert longest_path_s(given, np.array([0.001, 0.002, 0.005, 0.001])) == pytest.approx(0.007)
    assert cheapest_crossing_s(given, 0) == pytest.approx(18e-6)

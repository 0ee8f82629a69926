"""What people ask of a plan: every number against a closed form worked in a comment."""

from __future__ import annotations

import copy
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.answers import (
    answers_of,
    answers_to_json,
    cpu_offload,
    even_placement,
    even_split,
    fetching_pays_from,
    holdings,
    one_or_many,
)
from placewright.answers.context import context_room
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InvalidInput
from placewright.evaluate import Evaluation, judge, longest_contexts, plan_for
from placewright.graph import GrowingCache, Operator, OperatorGraph, Tensor
from placewright.io import problem_from_json, problem_to_json
from placewright.objective import Makespan, MaxLoad, Throughput
from placewright.plan import Copy, Plan
from placewright.problem import Problem
from placewright.result import Result

MiB, GB = 2**20, 10**9
LINK = Link(0.0, 10 * GB, link_class="same-host")


def chain(
    *devices: Device, times: list[list[float]], weights: int = 100 * MiB, cache: tuple[GrowingCache, ...] = ()
) -> Problem:
    """Operators a, b, c, d in a row; tensors take no time to speak of: 0 B."""
    held = sum(c.size_bytes(c.tokens) for c in cache)
    operators = [
        Operator(name, weight_bytes=weights, traffic_bytes=weights, kv_cache_bytes=held, caches=cache)
        for name in "abcd"
    ]
    tensors = [Tensor(f"t{k}", k, (k + 1,)) for k in range(3)]
    return Problem(OperatorGraph(operators, tensors), Cluster(devices, [LINK]), np.array(times))


def planned(problem: Problem, placement: list[int]) -> tuple[Plan, Evaluation]:
    plan = plan_for(problem, placement)
    assert plan is not None
    return plan, judge(problem, plan)


FAST, SLOW = Device("fast", memory_bytes=1000 * MiB), Device("slow", memory_bytes=500 * MiB)
PAIR = [[1.0, 3.0]] * 4
"""Seconds: the slow device takes three times as long."""


def test_what_a_device_holds() -> None:
    """Operators by name and number, memory by part and as a share of the limit: 300 of 1,000 MiB, 100 of 500."""
    problem = chain(FAST, SLOW, times=PAIR)
    assert holdings(problem, *planned(problem, [0, 0, 1, 0])) == [
        "'fast' holds 3 operators from 'a' to 'd', not all between them: weights 300 MiB; that is 30% of 1000 MiB.",
        "'slow' holds 1 operator, 'c': weights 100 MiB; that is 20% of 500 MiB.",
    ]


def test_many_devices_are_counted() -> None:
    """Of more than 16 devices the rest is counted."""
    devices = [Device(f"d{k}") for k in range(18)]
    operators = [Operator(f"v{k}") for k in range(18)]
    problem = Problem(OperatorGraph(operators), Cluster(devices, [LINK]), np.ones((18, 18)))
    assert holdings(problem, *planned(problem, list(range(18))))[-1] == "2 more devices hold the rest."


def test_why_not_evenly_for_one_sample() -> None:
    """Two operators each: 1 + 1 + 3 + 3 = 8 s against 4 s on the fast device alone, 100 % more."""
    problem = chain(FAST, SLOW, times=PAIR)
    assert even_placement(problem).tolist() == [0, 0, 1, 1]
    said = even_split(problem, *planned(problem, [0, 0, 0, 0]))
    assert said == [
        "Equal shares of the weights on 'fast' and 'slow' would take 8 s, 100% more than the plan.",
        "'slow' takes 3 times as long as 'fast' for the whole network, so equal bytes are not equal times, and what is "
        "computed there adds to the sum.",
    ]


def test_why_not_evenly_in_a_pipeline() -> None:
    """Loads of the even split are 2 s and 6 s; three to one are 3 s and 3 s."""
    problem = replace(chain(FAST, SLOW, times=PAIR), objective=MaxLoad())
    said = even_split(problem, *planned(problem, [0, 0, 0, 1]))
    assert said == [
        "Equal shares of the weights on 'fast' and 'slow' would take 6 s a sample, 100% more than the plan.",
        "'slow' takes 3 times as long as 'fast' for the whole network: with equal shares it is busy 6 s of each "
        "sample, 'fast' 2 s, and the slowest sets the pace.",
    ]


def test_an_even_split_that_can_not_be_had_or_is_the_plan() -> None:
    """Two operators need 600 MiB of the 500; on equal devices the plan may be the even split itself."""
    problem = chain(Device("fast", memory_bytes=2000 * MiB), SLOW, times=PAIR, weights=300 * MiB)
    (said,) = even_split(problem, *planned(problem, [0, 0, 0, 0]))
    assert said.startswith("Equal shares of the weights on 'fast' and 'slow' can't be had: device 'slow' needs 600 MiB")
    alike = replace(chain(FAST, Device("twin"), times=[[1.0, 1.0]] * 4), objective=MaxLoad())
    assert even_split(alike, *planned(alike, [0, 0, 1, 1]))[0].endswith("are what the plan has.")


def test_an_even_split_that_is_better_is_said_to_be() -> None:
    """A plan that is worse than the even split (3 s against 2 s) is no secret."""
    problem = replace(chain(FAST, Device("twin"), times=[[1.0, 1.0]] * 4), objective=MaxLoad())
    assert "less than the plan" in even_split(problem, *planned(problem, [0, 0, 0, 1]))[0]


def test_equal_shares_are_of_work_or_of_operators_without_weights() -> None:
    """1 of 4 and 3 of 4 parts of the work; middles at 1/8, 5/16, 7/16 and 3/4 of it: three operators and one."""
    operators = [Operator(name, flops=size) for name, size in zip("abcd", (4, 2, 2, 8), strict=True)]
    cluster = Cluster([Device("x"), Device("y")], [LINK])
    assert even_placement(Problem(OperatorGraph(operators), cluster, np.ones((4, 2)))).tolist() == [0, 0, 0, 1]
    bare = OperatorGraph([Operator(name) for name in "abcd"], colocation=[(0, 3)])
    assert even_placement(Problem(bare, cluster, np.ones((4, 2)))).tolist() == [0, 0, 1, 0]


def test_a_split_that_helps_only_many() -> None:
    """One query: 1 + 1 + 1 + 3 = 6 s against 4 s alone. Many: loads of 3 s and 3 s against 4 s, 1.33 times."""
    problem = chain(FAST, Device("slow"), times=PAIR)
    plan, _ = planned(problem, [0, 0, 0, 1])
    assert one_or_many(problem, plan) == [
        "One query takes 6 s, on 'fast' alone, the best single device, 4 s: the split does not help it.",
        "Of many queries, devices work on different ones at a time: one sample comes out every 3 s, 0.333/s, 1.33 "
        "times the 0.25/s of the best device alone; the busiest device sets that pace.",
    ]


def test_a_split_that_helps_one_query() -> None:
    """Each device is quick at half of the network: 1 + 1 + 1 + 1 = 4 s against 8 s alone; many come every 2 s."""
    problem = chain(FAST, Device("other"), times=[[1.0, 3.0], [1.0, 3.0], [3.0, 1.0], [3.0, 1.0]])
    first, second = one_or_many(problem, planned(problem, [0, 0, 1, 1])[0])
    assert first.endswith("8 s: the split helps it, 2 times as fast.")
    assert "one sample comes out every 2 s, 0.5/s, 4 times the 0.125/s" in second


def test_one_device_is_no_split_and_a_need_is_one() -> None:
    """A plan of one device says so; where no device holds the network even one query needs the split."""
    problem = chain(FAST, SLOW, times=PAIR)
    (said,) = one_or_many(problem, planned(problem, [0, 0, 0, 0])[0])
    assert said == (
        "It is no split: 'fast' alone takes 4 s a sample, 0.25/s, for one query and for many; --objective max-load "
        "looks for a split that helps many."
    )
    answer = replace(problem, objective=Makespan(per="answer"))
    assert "takes 4 s an answer" in one_or_many(answer, planned(answer, [0, 0, 0, 0])[0])[0]
    steady = replace(problem, objective=MaxLoad())
    assert one_or_many(steady, planned(steady, [0, 0, 0, 0])[0])[0].endswith("for one query and for many.")
    large = chain(FAST, SLOW, times=PAIR, weights=300 * MiB)
    first = one_or_many(large, planned(large, [0, 0, 0, 1])[0])[0]
    assert first == "No device alone can run the network, so even one query needs the split: 6 s."


def test_a_pipeline_holds_the_caches_of_many_queries() -> None:
    """1,000 MiB of weights and 600 of caches in 1,500 MiB; 'fast' alone has room for 500 of them and takes 4 s a step.

    Where a device of 9 s a step holds all, the split (6 s) is not said to help one query: 'fast' may take 4 s for it.
    """
    small = Device("fast", memory_bytes=1500 * MiB), Device("slow", memory_bytes=1500 * MiB)
    problem = replace(chain(*small, times=PAIR), objective=MaxLoad())
    operators = [replace(v, weight_bytes=250 * MiB, kv_cache_bytes=150 * MiB) for v in problem.graph.operators]
    problem = replace(problem, graph=replace(problem.graph, operators=operators))
    first, second, third = one_or_many(problem, planned(problem, [0, 0, 0, 1])[0])
    assert first == (
        "No device alone has room for the network and the KV caches of all queries, so many queries need the split: "
        "6 s a step."
    )
    assert second == (
        "'fast' alone has room for 500 MiB of caches beside the network: with no more queries under way than fit there "
        "a step takes 4 s, 0.25/s."
    )
    assert "one step comes out every 3 s" in third
    larger = replace(problem, cluster=Cluster([small[0], Device("slow")], problem.cluster.links))
    first, second, third = one_or_many(larger, planned(larger, [0, 0, 0, 1])[0])
    assert first == (
        "For one query a step takes 6 s, on 'slow' alone, the best single device with room for all KV caches, 600 MiB, "
        "12 s."
    )
    assert second.startswith("'fast' alone has room for 500 MiB of caches")
    assert third.count("4 times the 0.0833/s of the best device alone with room for all caches") == 1


def test_training_and_copies_are_no_queries() -> None:
    """A network with a backward pass, or copies of one, has no answer to one or many."""
    problem = replace(chain(FAST, SLOW, times=PAIR), objective=Throughput())
    assert one_or_many(problem, planned(problem, [0, 0, 0, 0])[0]) == []


def test_the_longest_context_is_exact() -> None:
    """8,000 bits a token on each of two operators: 2,000 B; (1,000 - 200) MiB / 2,000 B = 419,430.4, rounded down."""
    problem = chain(FAST, SLOW, times=PAIR, cache=(GrowingCache(8000.0, 1024),))
    plan, judged = planned(problem, [0, 0, 1, 1])
    assert longest_contexts(problem, plan, judged) == {0: 419430, 1: 300 * MiB // 2000}
    assert context_room(problem, plan, judged) == [
        "It fits: 3.91 MiB in all, with room for 1,024 tokens of each sequence.",
        "With this placement memory reaches 157,286 tokens, then 'slow' is full.",
        "By itself each device has room for: 'slow' 157,286 and 'fast' 419,430 tokens.",
    ]


def test_what_copies_hold_is_counted_wherever_it_is() -> None:
    """4 operators of 1,024,000 B: 3.91 MiB in one copy, twice that in two on two devices, whether it grows or not."""
    for caches in ((GrowingCache(8000.0, 1024),), ()):
        once = replace(chain(FAST, SLOW, times=PAIR, cache=(GrowingCache(8000.0, 1024),)), objective=Throughput())
        operators = [replace(v, caches=caches) for v in once.graph.operators]
        problem = replace(once, graph=OperatorGraph(operators, once.graph.tensors))
        copies = (Copy(np.zeros(4, np.int32), 0.75), Copy(np.ones(4, np.int32), 0.25))
        for made, total in ((copies[:0], "3.91 MiB"), (copies, "7.81 MiB")):
            plan = plan_for(problem, [0, 0, 0, 0], copies=made)
            assert plan is not None
            assert total in context_room(problem, plan, judge(problem, plan))[0]


def test_what_replicas_hold_has_a_context_too() -> None:
    """a, b on 'first', c and d on it and its like: (1,000 - 400) MiB / (4 x 1,000 B) on each, as the judge counts."""
    two = (replace(FAST, name="first"), replace(FAST, name="second"))
    problem = chain(*two, times=[[1.0, 1.0]] * 4, cache=(GrowingCache(8000.0, 1024),))
    problem = replace(problem, objective=MaxLoad(replicate=True))
    plan = plan_for(problem, [0, 0, 0, 0], replicas=[(0, 1)])
    assert plan is not None
    reach = 600 * MiB // 4000
    assert longest_contexts(problem, plan, judge(problem, plan)) == {0: reach, 1: reach}


def test_a_full_window_needs_no_more() -> None:
    """A cache that a window keeps at 64 tokens never fills the device."""
    problem = chain(FAST, Device("slow"), times=PAIR, cache=(GrowingCache(8000.0, 1024, most=64),))
    plan, judged = planned(problem, [0, 0, 0, 0])
    assert longest_contexts(problem, plan, judged) == {0: None}
    assert context_room(problem, plan, judged)[-1] == "On 'fast' memory sets no limit."


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), min_size=1, max_size=4),
    st.integers(0, 20),
    st.integers(0, 400),
)
def test_the_longest_context_is_that_of_trying_all(grown: list[tuple[int, int]], tokens: int, more: int) -> None:
    """Whatever caches and windows: so many tokens fit, and one more does not."""
    caches = tuple(GrowingCache(float(bits), tokens, most) for bits, most in grown)
    now = sum(c.size_bytes(tokens) for c in caches)
    problem = Problem(
        OperatorGraph([Operator("a", kv_cache_bytes=now, caches=caches)]),
        Cluster([Device("x", memory_bytes=now + more)]),
        np.ones((1, 1)),
    )
    plan, judged = planned(problem, [0])
    tried = next((t for t in range(5000) if sum(c.size_bytes(t + 1) for c in caches) > now + more), None)
    assert longest_contexts(problem, plan, judged) == {0: tried}


def test_caches_of_a_problem_file_come_back() -> None:
    """What is known of caches is in the problem's file, and a cache out of range is refused."""
    problem = chain(FAST, SLOW, times=PAIR, cache=(GrowingCache(136.0, 1024), GrowingCache(8.5, 7, 64)))
    document = msgspec.json.decode(msgspec.json.encode(problem_to_json(problem)))
    assert problem_from_json(document).graph.operators == problem.graph.operators
    wrong = copy.deepcopy(document)
    wrong["graph"]["operators"][0]["caches"] = [[1e300, 1, 0]]
    with pytest.raises(InvalidInput, match="caches"):
        problem_from_json(wrong)


CPU = Device("cpu", kind="cpu", memory_bandwidth_bytes_per_s=50 * GB)


def test_fetching_pays_from() -> None:
    """200 MiB in 8 s on the CPU and 2 s on the GPU: 200 MiB / 6 s = 34,952,533 B/s; no faster, never."""
    assert fetching_pays_from(200 * MiB, 8.0, 2.0) == pytest.approx(34_952_533.33, rel=1e-9)
    assert fetching_pays_from(200 * MiB, 2.0, 2.0) == float("inf")


def test_what_a_cpu_computes_could_be_fetched() -> None:
    """c and d take 8 ms on the CPU and 2 ms on the GPU; 209.7 MB / 6 ms = 35 GB/s, and the link has 10."""
    gpu = Device("gpu", memory_bytes=250 * MiB)
    problem = chain(gpu, CPU, times=[[0.001, 0.004]] * 4)
    assert cpu_offload(problem, *planned(problem, [0, 0, 1, 1])) == [
        "The network holds 400 MiB, more than the 250 MiB that the accelerator has: some of it has to be in RAM.",
        "'cpu' computes 2 operators in 8 ms (80% of the value).",
        "To compute them on 'gpu' in 2 ms, their 200 MiB of weights would have to be fetched each time, which pays "
        "from 35 GB/s on; the link has 10 GB/s, so computing there is better.",
    ]
    slow = chain(gpu, CPU, times=[[0.001, 0.04]] * 4)  # 209.7 MB / 78 ms = 2.69 GB/s
    assert cpu_offload(slow, *planned(slow, [0, 0, 1, 1]))[-1].endswith(
        "from 2.69 GB/s on; the link has 10 GB/s, so fetching would beat computing there."
    )


def test_caches_are_fetched_as_well_where_they_have_no_room() -> None:
    """100 MiB of weights and 25 of cache each: 250 MiB, or 200 where the GPU has 50 MiB free, in 6 ms."""
    for limit, said in ((250, "250 MiB of weights and KV cache"), (300, "200 MiB of weights")):
        problem = chain(Device("gpu", memory_bytes=limit * MiB), CPU, times=[[0.001, 0.004]] * 4)
        operators = [replace(v, kv_cache_bytes=25 * MiB, traffic_bytes=125 * MiB) for v in problem.graph.operators]
        problem = replace(problem, graph=replace(problem.graph, operators=operators))
        rate = {250: "43.7", 300: "35"}[limit]
        (sentence,) = (t for t in cpu_offload(problem, *planned(problem, [0, 0, 1, 1])) if t.startswith("To compute"))
        assert f"their {said} would have to be fetched each time, which pays from {rate} GB/s on" in sentence


def test_a_cpu_that_is_not_needed() -> None:
    """4 x 104.9 MB in 4 ms are 105 GB/s; the CPU has 50 and takes four times as long."""
    problem = chain(Device("gpu"), CPU, times=[[0.001, 0.004]] * 4)
    assert cpu_offload(problem, *planned(problem, [0, 0, 0, 0])) == [
        "The plan does without: 'gpu' holds all 400 MiB.",
        "'cpu' is slower at 4 of 4 operators, taking 4 times as long for all of them. To be as fast it would need 105 "
        "GB/s of memory bandwidth at least; it has 50 GB/s.",
    ]


def test_all_answers_together() -> None:
    """Questions that make no sense for a plan are left out, the others come in order, as JSON too."""
    problem = chain(FAST, SLOW, times=PAIR)
    plan, judged = planned(problem, [0, 0, 0, 0])
    answers = answers_of(problem, Result(plan), judged)
    assert [a.question for a in answers] == [
        "What does each device hold?",
        "Why is this device unused?",
        "Why not split evenly?",
        "Does this split help one query, or only many?",
    ]
    told = answers_to_json(answers)["answers"]
    assert told[0]["sentences"] == [
        "'fast' holds 4 operators from 'a' to 'd': weights 400 MiB; that is 40% of 1000 MiB."
    ]

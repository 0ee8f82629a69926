"""Why the loads are what they are: every sentence against numbers worked by hand."""

from __future__ import annotations

from placewright.cluster import Cluster, Device, Link
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.report.explain import explain, explain_devices
from placewright.result import Result

from .pipelines import MiB, chain, gpus, planned, training


def said(*args, **rest):
    given, result, judged = planned(*args, **rest)
    return explain(given, result, judged)


def test_the_bottleneck_is_named_with_the_parts_of_its_load():
    """gpu0: 1 + 2 + 3 + 0.5 = 6.5 ms; gpu1: 4.5; both in use (6.5 + 4.5) / 13 of the time."""
    text = said(chain(devices=gpus(2)), [0, 0, 0, 1])
    assert text[0] == (
        "The bottleneck is 'gpu0' with 6.5 ms a sample: 6 ms of computing (3 operators) and 500 us for 1 tensor out."
    )
    assert text[1] == "The 2 devices in use are busy 84.6% of the time on average."


def test_a_move_that_helps_is_admitted():
    """c on gpu2: gpu0 has 3 + 1 ms, gpu2 3 + 1 + 0.5, gpu1 4.5; the whole 4.5 instead of 6.5 ms."""
    given, result, judged = planned(chain(), [0, 0, 0, 1])
    assert explain_devices(given, result.plan, judged) == [
        "'gpu2' is unused: it is exactly as fast as what the plan uses; moving 'c' there (3 ms of computing, 1.5 ms of "
        "transfers) makes the whole 4.5 ms a sample, 30.8% less: a longer budget should find a better plan."
    ]


def test_a_move_out_of_the_middle_of_a_stage_is_proposed_only_where_it_is_allowed():
    """1, 4, 1, 1 ms on gpu0. b alone on gpu1: 4 + 0.5 + 1 against 3 + 0.5 + 1 ms, but the chain would go back to gpu0.

    At an edge, a or d on gpu1 leaves 6 + 0.5 ms.
    """
    for kind, move in (
        (
            "any",
            "moving 'b' there (4 ms of computing, 1.5 ms of transfers) makes the whole 5.5 ms a sample, 21.4% less",
        ),
        (
            "contiguous",
            "moving 'a' there (1 ms of computing, 500 us of transfers) makes the whole 6.5 ms a sample, 7.1%",
        ),
    ):
        usual = chain(MaxLoad(contiguity=kind), gpus(2))
        times = [[0.001] * 2, [0.004] * 2, [0.001] * 2, [0.001] * 2]
        given, result, judged = planned(Problem(usual.graph, usual.cluster, times, usual.objective), [0, 0, 0, 0])
        assert move in explain_devices(given, result.plan, judged)[0]


def test_memory_forbids_moves():
    """Half a MiB holds no operator of 1 MiB."""
    given, result, judged = planned(chain(devices=[*gpus(1), Device("tiny", memory_bytes=MiB // 2)]), [0, 0, 0, 0])
    assert explain_devices(given, result.plan, judged)[0].startswith("'tiny' is unused: its 512 KiB of memory hold")


def test_the_gain_is_one_of_throughput():
    """10 ms alone, 4.5 ms on three: 2.22 times."""
    assert said(chain(), [0, 0, 1, 2])[3] == (
        "3 devices together make 222 samples/s, 2.22 times the 100 samples/s of 'gpu0' alone, the best single device "
        "(10 ms a sample)."
    )


def test_a_plan_no_faster_than_one_device_says_so():
    """x at 0.01 GB/s takes 50 ms."""
    fast = chain(devices=gpus(2))
    slow = Cluster(gpus(2), [Link(0.0, 1e7, link_class="same-host")])
    text = said(Problem(fast.graph, slow, fast.times, fast.objective), [0, 1, 1, 1])
    assert text[2] == (
        "This plan is no faster than 'gpu0' alone, which takes 10 ms a sample; "
        "a longer budget should find at least that."
    )


def test_one_device_as_the_best_answer():
    """Proved or not is told apart; nothing is divided from an only device."""
    assert said(chain(devices=gpus(2)), [0, 0, 0, 0], bound=0.01)[1] == (
        "One device alone is the best answer: 10 ms a sample."
    )
    assert said(chain(devices=gpus(1)), [0, 0, 0, 0])[1] == "The cluster has one device, so there is nothing to choose."


def test_several_devices_are_needed_where_none_holds_all():
    """4 MiB on 3 MiB each."""
    text = said(chain(devices=gpus(2, memory_bytes=3 * MiB)), [0, 0, 1, 1])
    assert "No device alone can run the network, so several are needed." in text


def test_passes_have_a_bottleneck_each():
    """Forward 3 + 1 against 3 + 1 ms; backward 10 + 1 against 2 + 1."""
    text = said(training(MaxLoad(training="separate"), gpus(2)), [0, 0, 1, 1, 0, 0])
    assert text[:3] == [
        "In the forward pass the bottlenecks are 'gpu0' and 'gpu1' with 4 ms a sample each; of 'gpu0': 3 ms of "
        "computing (2 operators) and 1 ms for 1 tensor out.",
        "In the backward pass the bottleneck is 'gpu0' with 11 ms a sample: 10 ms of computing (2 operators) and 1 ms "
        "for 1 tensor in.",
        "'gpu1' runs nothing but 'c' and 1 operator tied to it, which no placement divides.",
    ]


def test_copies_divide_all_but_the_synchronising():
    """13 / 2 ms of computing, 1 / 2 ms in and out, 3 ms for 3 MB twice halved at 1 GB/s."""
    text = said(training(MaxLoad(replicate=True)), [0, 0, 2, 2, 0, 0], replicas=((0, 1),))
    assert text[0] == (
        "The bottleneck is 'gpu0, gpu1 (2 copies)' with 10.5 ms a sample: 6.5 ms of computing (4 operators), 500 us "
        "for 1 tensor in, 500 us for 1 tensor out and 3 ms of synchronising weights, all divided by its 2 copies but "
        "the synchronising."
    )


def test_parts_that_overlap_are_told_from_parts_that_add_up():
    """gpu0 computes 6 ms and sends 0.5: the larger counts; at a twentieth of the bandwidth it sends 10 ms."""
    text = said(chain(MaxLoad(overlap="transfers"), gpus(2)), [0, 0, 0, 1])
    assert text[0] == (
        "The bottleneck is 'gpu0' with 6 ms a sample: 6 ms of computing (3 operators) and 500 us for 1 tensor out; "
        "these overlap, and computing takes longest."
    )
    fast = chain(MaxLoad(overlap="full"), gpus(2))
    slow = Problem(fast.graph, Cluster(gpus(2), [Link(0.0, 5e7, link_class="same-host")]), fast.times, fast.objective)
    assert said(slow, [0, 0, 0, 1])[0] == (
        "The bottlenecks are 'gpu0' and 'gpu1' with 10 ms a sample each; of 'gpu0': 6 ms of computing (3 operators) "
        "and 10 ms for 1 tensor out; these overlap, and transfers out take longest."
    )
    half = Problem(fast.graph, slow.cluster, fast.times, MaxLoad(overlap="full", busy_share=0.5))
    assert said(half, [0, 0, 0, 1])[0] == (  # 6 + 0.5 x 10
        "The bottleneck is 'gpu0' with 11 ms a sample: 6 ms of computing (3 operators) and 10 ms for 1 tensor out; "
        "these overlap, but for 50% of the transfers, and computing with what is busy for them takes longest."
    )


def test_a_channel_as_the_bottleneck_is_compared_with_the_busiest_device():
    """At 0.1 GB/s x, y and z take 5, 10 and 5 ms: 20 on the channel; gpu2 has 3 + 10 + 5."""
    fast = chain(devices=gpus(4))
    slow = Cluster(gpus(4), [Link(0.0, 1e8, link_class="same-host", channel="pcie")])
    assert said(Problem(fast.graph, slow, fast.times, fast.objective), [0, 1, 2, 3])[0] == (
        "The bottleneck is channel 'pcie@local': 3 transfers over it take 20 ms a sample; the busiest device, 'gpu2', "
        "has 18 ms."
    )


def test_contiguity_that_was_not_asked_for_is_mentioned():
    """Only an optimal plan shows that contiguity costs nothing."""
    loose = chain(MaxLoad(contiguity="any"), gpus(2))
    assert "The plan is contiguous, though it need not be." in said(loose, [0, 0, 0, 1])
    assert "The plan is contiguous, though it need not be, so contiguity costs nothing here." in said(
        loose, [0, 0, 0, 1], bound=0.0065
    )
    assert not any("contiguous" in s for s in said(chain(), [0, 0, 0, 1]) + said(loose, [0, 1, 0, 1]))


def test_the_gap_is_worded_a_sample():
    """Value 6.5, bound 5.2 ms: a quarter longer, a gap of a fifth."""
    assert said(chain(), [0, 0, 0, 1], bound=0.0052, bounds={"ideal-dp": 0.0052, "load": 0.004})[-1] == (
        "No plan can be below 5.2 ms a sample (ideal-dp), so this plan takes at most 25% longer than the best one; "
        "the gap is 20%."
    )
    assert said(chain(), [0, 0, 0, 1])[-1] == "Nothing is proved about the gap: no lower bound was computed."
    assert "take less time per sample" in said(chain(), [0, 0, 1, 2], bound=0.0045)[-1]
    assert explain(chain(), Result(infeasible="too big"), None) == ["There is no plan: too big."]

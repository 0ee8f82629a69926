"""Terminal reports of pipelines, letter by letter."""

from __future__ import annotations

import io
import textwrap

from rich.console import Console

from placewright.cluster import Device, Link
from placewright.evaluate import evaluate
from placewright.graph import OperatorGraph
from placewright.objective import MaxLoad
from placewright.problem import Problem
from placewright.report import comparison_table, evaluation_report, plan_report
from placewright.report.terminal_loads import load_tables
from placewright.result import Result

from .pipelines import MiB, chain, gpus, planned, training


def rendered(*renderables):
    """What a pipe of 80 columns gets, without the spaces at the ends of lines."""
    stream = io.StringIO()
    for renderable in renderables:
        Console(file=stream, width=80).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def expected(text):
    return textwrap.dedent(text).lstrip("\n")


def tables(given, result, judged):
    return rendered(*load_tables(given, judged, result.plan))


def test_a_contiguous_plan_is_reported_in_the_order_of_its_pipeline():
    """gpu1 runs a and b: 3 ms, y out 1 ms; gpu0 c: 3 + 1 + 0.5; gpu2 d: 4 + 0.5. 1/4.5 ms = 222 samples/s.

    One sample: 1 + 2 + 1 (y) + 3 + 0.5 (z) + 4 = 11.5 ms. Busy: (4 + 4.5 + 4.5) / 13.5. On the cpu c alone takes 30 ms.
    """
    given = chain(devices=[*gpus(3, memory_bytes=8 * MiB), Device("cpu0", kind="cpu")])
    alone = {f"only {d.name}": 0.1 if d.kind == "cpu" else 0.01 for d in given.cluster.devices}
    bounds = {"ideal-dp": 0.00432, "fractional-load": 0.004}
    text = rendered(plan_report(*planned(given, [1, 1, 0, 2], bound=0.00432, bounds=bounds, alternatives=alone)))
    assert text == expected("""
         network           chain (4 operators, 3 tensors) on 4 devices
         objective         max-load, contiguous, times given
         status            feasible
         value             4.5 ms a sample, 222 samples/s
         one sample alone  11.5 ms through the empty pipeline
         lower bound       4.32 ms a sample (at most 231 samples/s), gap 4%
         solver            by-hand, 1.5 s, seed 3

        loads of a sample: compute + in + out
         device     load   share   compute       in      out
        ─────────────────────────────────────────────────────
         gpu1       4 ms   88.9%      3 ms        -     1 ms
         gpu0     4.5 ms    100%      3 ms     1 ms   500 us
         gpu2     4.5 ms    100%      4 ms   500 us        -
         cpu0        0 s      0%         -        -        -

        stages, in the order of the pipeline
             device   operators   first   last
        ───────────────────────────────────────
         1   gpu1     2           a       b
         2   gpu0     1           c       -
         3   gpu2     1           d       -

        memory
         device   weights   limit    used
        ──────────────────────────────────
         gpu1       2 MiB   8 MiB     25%
         gpu0       1 MiB   8 MiB   12.5%
         gpu2       1 MiB   8 MiB   12.5%

        alternatives
         placement                     predicted   relative
        ────────────────────────────────────────────────────
         only gpu0 (same for 2 more)       10 ms      2.222
         only cpu0                        100 ms     22.222
         plan                             4.5 ms      1.000

         lower bound                     4.32 ms      0.960
         gap of the plan: 4% (feasible)

        lower bounds
         bound               value   of the plan
        ─────────────────────────────────────────
         ideal-dp          4.32 ms           96%
         fractional-load      4 ms         88.9%

         - The bottlenecks are 'gpu0' and 'gpu2' with 4.5 ms a sample each; of 'gpu0': 3
           ms of computing (1 operator), 1 ms for 1 tensor in and 500 us for 1 tensor
           out.
         - 'gpu0' runs nothing but 'c' and 'gpu2' runs nothing but 'd', which no
           placement divides.
         - The 3 devices in use are busy 96.3% of the time on average.
         - 3 devices together make 222 samples/s, 2.22 times the 100 samples/s of 'gpu0'
           alone, the best single device (10 ms a sample).
         - 'cpu0' is unused: it is slower at every operator, taking 10 times as long as
           the device in use; the most promising move, 'c' there (30 ms of computing),
           makes the whole 30 ms a sample, 567% more than now; alone it would take 100
           ms a sample.
         - No plan can be below 4.32 ms a sample (ideal-dp), so this plan takes at most
           4.2% longer than the best one; the gap is 4%.
        """)


def test_passes_that_count_apart_have_a_row_each():
    """gpu0 runs a, b and their backward operators: 3 + 1 ms forward, 4 + 6 + 1 back; gpu1 c: 3 + 1 and 2 + 1."""
    given, result, judged = planned(training(MaxLoad(training="separate")), [0, 0, 1, 1, 0, 0])
    assert tables(given, result, judged) == expected("""
        loads of a sample: compute + in + out
         device   pass        load   share   compute     in    out
        ───────────────────────────────────────────────────────────
         gpu0     forward     4 ms    100%      3 ms      -   1 ms
                  backward   11 ms    100%     10 ms   1 ms      -
         gpu1     forward     4 ms    100%      3 ms   1 ms      -
                  backward    3 ms   27.3%      2 ms      -   1 ms
         gpu2                  0 s      0%         -      -      -
        stages, in the order of the pipeline
             device   operators               first   last
        ───────────────────────────────────────────────────
         1   gpu0     2 forward, 2 backward   a       b
         2   gpu1     1 forward, 1 backward   c       c
        memory
         device    weights   limit   used
        ──────────────────────────────────
         gpu0     2.86 MiB    none      -
         gpu1     2.86 MiB    none      -
        """)
    text = rendered(plan_report(given, result, judged))
    assert (
        " value             15 ms a sample, 66.7 samples/s\n passes            4 ms forward + 11 ms backward\n" in text
    )


def test_copies_of_a_stage_share_a_row():
    """a, b and back on two copies: 13 / 2, y and its gradient 1 / 2 each, and 2 x 1/2 x 3 MB at 1 GB/s = 3 ms."""
    given = training(MaxLoad(replicate=True))
    assert tables(*planned(given, [0, 0, 2, 2, 0, 0], replicas=((0, 1),))) == expected("""
        loads of a sample: compute + in + out + sync
         device                     load   share   compute       in      out   sync
        ────────────────────────────────────────────────────────────────────────────
         gpu0, gpu1 (2 copies)   10.5 ms    100%    6.5 ms   500 us   500 us   3 ms
         gpu2                       7 ms   66.7%      5 ms     1 ms     1 ms      -
        stages, in the order of the pipeline
             device                  operators               first   last
        ──────────────────────────────────────────────────────────────────
         1   gpu0, gpu1 (2 copies)   2 forward, 2 backward   a       b
         2   gpu2                    1 forward, 1 backward   c       c
        memory of each copy
         device                   weights   limit   used
        ─────────────────────────────────────────────────
         gpu0, gpu1 (2 copies)   2.86 MiB    none      -
         gpu2                    2.86 MiB    none      -
        """)


def test_channels_are_rows_and_overlap_is_named():
    """All three tensors cross: x 0.5, y 1 and z 0.5 ms on the channel; the largest part of each device counts."""
    given = chain(MaxLoad(overlap="full"), gpus(4), channel="pcie")
    assert tables(*planned(given, [0, 1, 2, 3])).split("stages")[0] == expected("""
        loads of a sample: max(compute, in, out)
         device               load   share   compute       in      out
        ───────────────────────────────────────────────────────────────
         gpu0                 1 ms     25%      1 ms        -   500 us
         gpu1                 2 ms     50%      2 ms   500 us     1 ms
         gpu2                 3 ms     75%      3 ms     1 ms   500 us
         gpu3                 4 ms    100%      4 ms   500 us        -

         channel pcie@local   2 ms     50%         -        -        -
        """)


def test_a_plan_that_is_no_chain_has_no_stages():
    """a, c on gpu0 and b, d on gpu1: 4 + 1 + 1 (x and z leave: 0.5 each, y enters), 6 + 1 + 1."""
    given, result, judged = planned(chain(MaxLoad(contiguity="any")), [0, 1, 0, 1])
    assert tables(given, result, judged) == expected("""
        loads of a sample: compute + in + out
         device   operators   load   share   compute     in    out
        ───────────────────────────────────────────────────────────
         gpu0             2   6 ms     75%      4 ms   1 ms   1 ms
         gpu1             2   8 ms    100%      6 ms   1 ms   1 ms
         gpu2             0    0 s      0%         -      -      -
        memory
         device   weights   limit   used
        ─────────────────────────────────
         gpu0       2 MiB    none      -
         gpu1       2 MiB    none      -
        """)


def test_many_stages_are_cut_off_but_never_the_bottleneck():
    """Of 40 stages 32 are shown, and the slowest, which is the last one, among them."""
    given = _long_chain(40)
    text = tables(*planned(given, list(range(40))))
    loads = text.split("stages, in the order")[0]
    assert "gpu39 " in loads
    assert "100%" in loads
    assert loads.count("\n gpu") == 32
    assert "... and 8 devices more" in loads
    assert "... and 8 stages more" in text


def test_long_names_lose_what_they_share_and_their_middle():
    """The common module moves below the table; nothing is wider than the terminal."""
    prefix = "transformer.encoder.layers."
    names = [f"{prefix}{k}.attention.self.query.weight.matmul" for k in range(4)]
    text = tables(*planned(_renamed(chain(), names), [0, 0, 1, 2]))
    assert f" names are those in {prefix}\n" in text
    assert " 1   gpu0     2           0.attenti...ght.matmul   1.attenti...ght.matmul\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_judgement_without_a_plan_lists_devices():
    """4 MiB on 2 MiB breaks a rule; the load is shown all the same."""
    given = chain(devices=gpus(2, memory_bytes=2 * MiB))
    text = rendered(evaluation_report(given, evaluate(given, [0, 0, 0, 0])))
    assert " value             10 ms a sample, 100 samples/s\n" in text
    assert " verdict           breaks 1 rule\n" in text
    assert " gpu0             4   10 ms    100%     10 ms    -     -\n" in text
    assert " gpu0       4 MiB   2 MiB   200%\n" in text


def test_a_placement_that_no_tensor_can_follow_has_no_value():
    """Without a link the load is infinite: no rate, no share."""
    full = chain()
    given = Problem(full.graph, full.cluster.__class__(gpus(3)), full.times, full.objective)
    text = rendered(evaluation_report(given, evaluate(given, [0, 0, 0, 1])))
    assert " value      infeasible\n" in text
    assert " gpu0             3   infeasible       -      6 ms            -   infeasible\n" in text


def test_a_comparison_marks_placements_that_break_a_rule():
    """Their values are no plans' values; below the table stands what they break, once a rule."""
    broken = "device 'gpu0' needs 9 MiB and has 8 MiB"
    found = planned(chain(), [0, 0, 1, 2], bound=0.0045)[1]
    rows = [
        ("ideal-dp", found),
        ("scotch", Result(lower_bound_s=0.0045, rejected_s=0.0042, rejected=broken, runtime_s=0.3)),
        ("local-search", Result(found.plan, 0.0045, rejected_s=0.0041, rejected=broken, runtime_s=2.0)),
        ("pipedream", Result(lower_bound_s=0.0045)),
    ]
    assert rendered(comparison_table(rows)) == expected("""
        comparison
         solver              value   relative   gap   status            time
        ─────────────────────────────────────────────────────────────────────
         ideal-dp           4.5 ms     1.0000    0%   optimal          1.5 s
         scotch           4.2 ms !          -     -   breaks a rule   300 ms
         local-search   4.5 ms (!)     1.0000    0%   optimal            2 s
         pipedream               -          -     -   unknown            0 s

         lower bound        4.5 ms     1.0000

         ! scotch, local-search (its own placement: 4.1 ms): device 'gpu0' needs 9 MiB
           and has 8 MiB
        """)


def _renamed(given, names):
    from dataclasses import replace

    operators = [replace(v, name=name) for v, name in zip(given.graph.operators, names, strict=True)]
    return replace(given, graph=OperatorGraph(operators, given.graph.tensors, name="long"))


def _long_chain(n):
    from placewright.cluster import Cluster
    from placewright.graph import Operator, Tensor

    graph = OperatorGraph([Operator(f"o{k}") for k in range(n)], [Tensor(f"t{k}", k, (k + 1,)) for k in range(n - 1)])
    cluster = Cluster(gpus(n), [Link(0.0, 1e9, link_class="same-host")])
    return Problem(graph, cluster, [[0.001 * (k + 1)] * n for k in range(n)], MaxLoad())

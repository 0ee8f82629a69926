"""What devices more would bring: their times, their links, and that the answer is bounded both ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.algorithm import Budget
from placewright.cluster import Cluster, Link
from placewright.costs import analytic
from placewright.errors import InvalidInput
from placewright.evaluate import plan_for
from placewright.graph import Operator, OperatorGraph, Tensor
from placewright.io import cluster_from_text
from placewright.objective import MaxLoad
from placewright.plan import Plan
from placewright.problem import Problem, Times
from placewright.whatif import sentences, what_if, what_ifs, what_ifs_to_json, with_devices

BOX = cluster_from_text("""
devices:
  - {name: slow, model: rtx-3060-12gb, host: box}
  - {name: ram, kind: cpu, host: box, memory: 64 GiB, flops: {fp32: 1.2 TFLOP/s}, memory_bandwidth: 60 GB/s}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
""")
GRAPH = OperatorGraph(
    [Operator(f"h.{k}.fc", "aten.linear", 2 * 10**9, 10**7, 5 * 10**6) for k in range(4)],
    [Tensor(f"t{k}", k, (k + 1,), 1000) for k in range(3)],
)


def posed(scale: float = 1.0) -> tuple[Problem, Plan]:
    """Analytic times, all of them ``scale`` as long; everything on the GPU."""
    times = analytic(GRAPH, BOX)
    problem = Problem(GRAPH, BOX, Times(times.processing_s * scale, source=times.source))
    plan = plan_for(problem, [0] * 4)
    assert plan is not None
    return problem, plan


def test_a_device_of_another_model_has_the_analytic_times() -> None:
    """On a cluster with the device in it, the analytic costs say the same."""
    more = with_devices(posed()[0], ["rtx-4090"])
    larger = cluster_from_text("""
devices:
  - {name: slow, model: rtx-3060-12gb, host: box}
  - {name: fast, model: rtx-4090, host: box}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
""")
    wanted = analytic(GRAPH, larger).processing_s[:, 1]
    np.testing.assert_allclose(more.times.processing_s[:, 2], wanted, rtol=1e-12)
    assert more.cluster.devices[2].memory_bytes == larger.devices[1].memory_bytes
    assert more.cluster.transfer_s(1000, 0, 2) == BOX.transfer_s(1000, 0, 1)


def test_what_was_measured_is_carried_over() -> None:
    """Where the GPU takes three times as long as the costs say, so does the further one."""
    plain, slower = (with_devices(posed(scale)[0], ["rtx-4090"]).times.processing_s[:, 2] for scale in (1.0, 3.0))
    np.testing.assert_allclose(slower, 3 * plain, rtol=1e-12)


def test_one_more_of_a_model_that_is_there_is_as_fast() -> None:
    """Its column is the same, also where operators state no work."""
    graph = OperatorGraph([Operator("a")])
    problem = Problem(graph, BOX, [[1.0, 2.0]])
    more = with_devices(problem, ["rtx-3060-12gb", "rtx-3060-12gb"])
    assert more.times.processing_s.tolist() == [[1.0, 2.0, 1.0, 1.0]]
    assert len({d.name for d in more.cluster.devices}) == 4
    with pytest.raises(InvalidInput, match="state no work, so their times on a rtx-4090 are not known"):
        with_devices(problem, ["rtx-4090"])


def test_what_it_brings_is_said_with_a_bound() -> None:
    """A chain takes as long on one alike GPU more, and less on a faster one; neither answer is worse than the plan."""
    problem, plan = posed()
    rows = what_ifs(problem, plan, ["rtx-3060-12gb", "rtx-4090"], budget_s=4)
    nothing, much = rows
    assert nothing.after_s == pytest.approx(plan.value_s)
    assert "one more rtx-3060-12gb brings nothing that was found" in nothing.sentence
    assert much.after_s < plan.value_s / 2
    assert much.result.lower_bound_s <= much.after_s
    assert much.sentence.startswith("one more rtx-4090: ")
    assert "it would hold 4 operators and 19.1 MiB" in much.sentence  # 4 x 5 MB
    assert sentences(rows, plan.value_s) == [much.sentence, nothing.sentence]
    shown = what_ifs_to_json(rows)["whatif"]
    assert [row["used"] for row in shown] == [[], ["rtx-4090"]]
    assert all(row["lower_bound_s"] <= row["after_s"] <= row["before_s"] * (1 + 1e-9) for row in shown)


def test_a_better_plan_without_the_device_is_no_gain_of_it() -> None:
    """Operators that no GPU may run: from a plan of 8 s the search finds one of 3 s, and the device holds nothing."""
    graph = OperatorGraph([Operator(f"v{k}") for k in range(4)])
    ram = cluster_from_text("""
devices:
  - {name: slow, model: rtx-3060-12gb, host: box}
  - {name: ram, kind: cpu, host: box}
  - {name: more ram, kind: cpu, host: box}
links:
  - {class: same-host, bandwidth: 12 GB/s}
""")
    problem = Problem(graph, ram, [[np.inf, 1.0, 2.0]] * 4)
    worse = plan_for(problem, [2] * 4)
    assert worse is not None and worse.value_s == 8.0
    row = what_if(problem, worse, ["rtx-3060-12gb"], budget=2)
    assert row.sentence.startswith(
        "one more rtx-3060-12gb brings nothing that was found; the search found a plan without it, 3 s instead of 8 s"
    )
    (row,) = rows = what_ifs(problem, worse, ["rtx-3060-12gb"], budget_s=2)
    assert (row.before_s, row.after_s) == (3.0, 3.0)
    assert sentences(rows, 8.0) == [
        "without any device more a longer search found 3 s instead of 8 s, which the others are compared with",
        "one more rtx-3060-12gb brings nothing that was found: 3 s as before (proved to be the best)",
    ]


def test_gains_that_may_be_had_without_the_devices_are_said() -> None:
    """Two of which one is used, against a plan of 4 s of which nothing is proved, and one that is proved."""
    graph = OperatorGraph([Operator(f"v{k}", weight_bytes=2**30) for k in range(2)])
    pair = cluster_from_text("""
devices:
  - {name: slow, model: rtx-3060-12gb, host: box}
links:
  - {class: same-host, bandwidth: 12 GB/s}
""")
    problem = Problem(graph, pair, [[2.0]] * 2)
    plan = plan_for(problem, [0, 0])
    assert plan is not None and plan.value_s == 4.0
    doubted, sure = (
        what_if(problem, plan, ["rtx-3060-12gb"] * 2, budget=2, without_s=bound).sentence for bound in (0.0, 4.0)
    )
    assert doubted == (
        "2 more rtx-3060-12gb: 2 s instead of 4 s (-50.0%; proved to be the best; as little without them is not ruled "
        "out); 1 of them would hold 1 operator and 1 GiB, 1 nothing"
    )
    assert sure == doubted.replace("; as little without them is not ruled out", "")


def test_caches_are_said_to_be_those_of_the_plan() -> None:
    """In a pipeline of a language model: how many queries are under way is part of its memory."""
    graph = OperatorGraph([replace(v, kv_cache_bytes=10) for v in GRAPH.operators], GRAPH.tensors)
    problem = Problem(graph, BOX, analytic(graph, BOX), MaxLoad("any"))
    plan = plan_for(problem, [0] * 4)
    assert plan is not None
    rows = what_ifs(problem, plan, ["rtx-3060-12gb"], budget_s=2)
    assert sentences(rows, plan.value_s)[-1].startswith("caches are the plan's, for as many queries under way")
    assert all("caches" not in line for line in sentences([what_if(*posed(), ["rtx-4090"], budget=1)], 1.0))


def test_the_plan_is_never_lost() -> None:
    """Without a budget the answer is the plan as it is."""
    problem, plan = posed()
    row = what_if(problem, plan, ["rtx-3060-12gb"], budget=Budget(0.0))
    assert row.after_s <= plan.value_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("models", "host", "complaint"),
    [
        (["rtx-9999"], None, "model 'rtx-9999' is not in the hardware catalogue"),
        (["rtx-4090"], "attic", "--host 'attic' is none of the cluster's hosts: box"),
        ([], None, "0 devices are not between 1 and 16"),
    ],
)
def test_wishes_that_are_refused(models: list[str], host: str | None, complaint: str) -> None:
    """The thing, its value, and what there is."""
    with pytest.raises(InvalidInput) as refused:
        with_devices(posed()[0], models, host)
    assert complaint in str(refused.value)


def test_a_device_that_no_class_of_links_reaches_is_refused() -> None:
    """Links between pairs alone say nothing of a further device, and tables of transfers neither."""
    pair = Cluster(BOX.devices, [Link(0.0, 1e9, between=("slow", "ram"))])
    with pytest.raises(InvalidInput, match="no class of links joins host 'box' with all others"):
        with_devices(Problem(GRAPH, pair, analytic(GRAPH, pair)), ["rtx-4090"])
    unlike = np.zeros((3, 2, 2))
    unlike[:, 0, 1] = 1.0  # there and back differ, though one rule joins both
    with pytest.raises(InvalidInput, match="transfer times as a table"):
        with_devices(Problem(GRAPH, BOX, Times(np.ones((4, 2)), transfer_s=unlike)), ["rtx-4090"])


def test_transfers_of_several_steps_are_those_of_a_cluster_with_the_device() -> None:
    """A table for 1 prefill and 256 steps grows by what pairs of the same rule take: as if posed with the device."""
    hosts = """
devices:
  - {name: here, model: rtx-3060-12gb, host: a}
  - {name: ram, kind: cpu, host: a, memory: 64 GiB, flops: {fp32: 1.2 TFLOP/s}, memory_bandwidth: 60 GB/s}
  - {name: there, model: rtx-3090, host: b}
%s
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
  - {class: between-hosts, bandwidth: 1 GB/s, latency: 100 us}
"""
    less, more = (
        cluster_from_text(hosts % line) for line in ("", "  - {name: more-rtx-4090-0, model: rtx-4090, host: a}")
    )
    sizes = [t.size_bytes for t in GRAPH.tensors]

    def posed_on(cluster: Cluster) -> Problem:
        return Problem(
            GRAPH, cluster, Times(analytic(GRAPH, cluster).processing_s, 257 * cluster.transfer_table(sizes))
        )

    added = with_devices(posed_on(less), ["rtx-4090"], "a")
    assert [d.name for d in added.cluster.devices] == [d.name for d in more.devices]
    np.testing.assert_allclose(added.times.transfer_s, posed_on(more).times.transfer_s, rtol=1e-12)

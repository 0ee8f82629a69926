"""A language model as a problem: grains, prefill and decode together, and what the judge says of both."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.costs import analytic, roofline
from placewright.errors import InvalidInput
from placewright.evaluate import evaluate, judge, plan_for
from placewright.language import Asked, Formats, explain_steps, model_of, pose_model
from placewright.language.answers import longest_context, step_seconds
from placewright.objective import Makespan, MaxLoad, Throughput
from placewright.plan import Copy
from placewright.problem import Problem, Wish
from placewright.solve import solve

TINY = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 4000,
    "max_position_embeddings": 8192,
}
MIXTRAL = {**TINY, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2}


def device(name: str, speed: float, memory_mib: float | None = None, cut_s: float = 0.0) -> Device:
    return Device(
        name,
        flops_per_s={"fp32": speed * 1e12, "bf16": speed * 4e12},
        memory_bandwidth_bytes_per_s=speed * 1e11,
        memory_bytes=None if memory_mib is None else int(memory_mib * 2**20),
        launch_overhead_s=5e-6,
        cut_overhead_s=cut_s,
    )


PAIR = Cluster([device("big", 3, 300, 1e-6), device("small", 1, 300)], [Link(2e-5, 1e10, link_class="same-host")])

TIGHT = Cluster([device("big", 3, 9, 1e-6), device("small", 1, 20)], PAIR.links)
"""The weights are 21 MiB: neither device holds them all."""


def posed(config=TINY, asked=None, objective=None, cluster=PAIR, times_of=analytic, wishes=()):
    return pose_model(
        model_of(config, "tiny"), cluster, asked or Asked(context=1024), objective or Makespan(), times_of, wishes
    )


def test_grains_hold_the_same_weights_cache_and_work():
    """Layers, modules and operators are the same network, cut differently; names are those of modules."""
    by_grain = {g: posed(asked=Asked(context=1024, grain=g)).problem for g in ("layer", "module", "operator")}
    sums = {
        tuple(sum(getattr(v, what) for v in p.graph.operators) for what in ("weight_bytes", "kv_cache_bytes", "flops"))
        for p in by_grain.values()
    }
    assert len(sums) == 1
    assert np.allclose(
        [p.times.processing_s.sum(axis=0) for p in by_grain.values()], posed().problem.times.processing_s.sum(axis=0)
    )
    assert [v.name for v in by_grain["layer"].graph.operators] == [
        "model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2", "lm_head",
    ]  # fmt: skip
    assert [v.name for v in by_grain["module"].graph.operators][:4] == [
        "model.embed_tokens", "model.layers.0.self_attn", "model.layers.0.mlp", "model.layers.1.self_attn",
    ]  # fmt: skip
    assert "model.layers.1.self_attn.q_proj" in by_grain["operator"].graph.index


@pytest.mark.parametrize("contention", ["none", "link", "port"])
def test_an_answer_is_prefill_and_its_tokens_on_every_placement_of_a_chain(contention):
    """The value of the one problem is prefill + n x decode, exactly, for each of 2^5 placements of five layers."""
    p = posed(asked=Asked(prompt=64, generate=10, grain="layer"), objective=Makespan(contention))
    for device_of in itertools.product((0, 1), repeat=5):
        whole = evaluate(p.problem, device_of).value_s
        prefill, decode = (evaluate(s, device_of).value_s for s in p.steps)
        assert whole == pytest.approx(prefill + 10 * decode, rel=1e-12)


@pytest.mark.parametrize("contention", ["none", "link"])
def test_an_answer_of_experts_apart_is_a_lower_bound_of_its_steps(contention):
    """Experts of a layer run side by side: the one problem never says more than the steps do in the same order."""
    p = posed(MIXTRAL, Asked(prompt=64, generate=10, grain="operator"), Makespan(contention))
    rng, below = np.random.default_rng(0), 0
    for _ in range(100):
        plan = plan_for(p.problem, rng.integers(0, 2, len(p.problem.graph)))
        prefill, decode = step_seconds(p.problem, p.steps, plan)
        assert plan.value_s <= (prefill + 10 * decode) * (1 + 1e-12)
        below += plan.value_s < (prefill + 10 * decode) * (1 - 1e-9)
    assert below  # it is not always met


def test_loads_of_an_answer_add_up():
    """Under max-load each device has the load of prefill plus that of ten decode steps, for every placement."""
    p = posed(asked=Asked(prompt=64, generate=10, grain="layer"), objective=MaxLoad())
    steps = [Problem(s.graph, s.cluster, s.times, MaxLoad()) for s in p.steps]
    for device_of in itertools.product((0, 1), repeat=5):
        whole = evaluate(p.problem, device_of).devices
        prefill, decode = (evaluate(s, device_of).devices for s in steps)
        for i in range(2):
            assert whole[i].load_s == pytest.approx(prefill[i].load_s + 10 * decode[i].load_s, rel=1e-12)


def test_an_expert_takes_its_share_of_its_time():
    """A decode step of one sequence gives 2 of 4 experts a token: half of the time of one that surely has it."""
    one = posed(MIXTRAL, Asked(context=1024, grain="operator"), times_of=roofline)
    many = posed(MIXTRAL, Asked(512, context=1024, grain="operator"), times_of=roofline)
    index = one.problem.graph.index["model.layers.0.mlp.experts.3"]
    weights = 3 * 512 * 1024 * 2
    read = weights + 2 * 512 * 2 + 2 * 4  # and its token, in and out, and what the router says of it
    assert one.problem.times.processing_s[index, 0] == pytest.approx(0.5 * (5e-6 + read / 0.8 / 3e11), rel=1e-3)
    assert many.problem.times.processing_s[index, 0] > one.problem.times.processing_s[index, 0]
    assert sum("experts" in v.name for v in one.problem.graph.operators) == 2 * (4 + 1)  # and their sums
    assert [v.name for v in posed(MIXTRAL).problem.graph.operators][1:5] == [
        "model.layers.0.self_attn", "model.layers.0.mlp.gate", "model.layers.0.mlp.experts", "model.layers.0.mlp",
    ]  # fmt: skip


def test_the_experts_of_a_layer_hand_over_their_sum():
    """As a module they make one tensor, which the sum with what goes past them reads."""
    graph = posed(MIXTRAL).problem.graph
    experts = graph.index["model.layers.0.mlp.experts"]
    made = [t for t in graph.tensors if t.producer == experts and t.readers]
    assert [(t.size_bytes, t.readers) for t in made] == [(2 * 512, (graph.index["model.layers.0.mlp"],))]


def test_what_a_module_makes_inside_counts_as_workspace():
    """Prefill of 2 x 64 tokens: gate, up and their product, 1,024 numbers of 2 bytes each, are live at once."""
    graph = posed(asked=Asked(2, prompt=64)).problem.graph
    sizes = {t.name: t.size_bytes for t in graph.tensors if not t.readers and not t.output}
    assert sizes["model.layers.0.mlp (workspace)"] == 3 * 2 * 64 * 1024 * 2


def test_wishes_match_modules_and_what_is_in_them():
    """A pin of a layer's projection places the module that it is in."""
    p = posed(wishes=[Wish("model.layers.1.self_attn.q_proj", "small")]).problem
    assert p.allowed[p.graph.index["model.layers.1.self_attn"]].tolist() == [False, True]


def test_plans_are_proved_and_explained():
    """The model doesn't fit the fast device alone; the plan is optimal, and its sentences say what the judge says."""
    p = posed(asked=Asked(2, prompt=64, generate=10), cluster=TIGHT)
    result = solve(p.problem, budget=20)
    plan = result.require_plan()
    assert result.gap < 1e-6 and len(plan.devices_used) == 2
    prefill, decode = step_seconds(p.problem, p.steps, plan)
    assert prefill + 10 * decode == pytest.approx(plan.value_s, rel=1e-9)
    said = explain_steps(p, plan, judge(p.problem, plan))
    assert len(said) == 3
    assert said[0].startswith("Reading the prompt takes ") and "each of 10 tokens after it" in said[0]
    assert f"{2 / decode:.4g} in all" in said[1]


def test_the_longest_context_is_the_last_one_that_fits():
    """Judged with it the placement keeps to memory, and with one token more it doesn't."""
    device_of = [0, 1, 1, 1, 1]
    p = posed(asked=Asked(2, context=100, grain="layer"), cluster=TIGHT)
    plan = plan_for(p.problem, device_of)
    reach, full = longest_context(p, plan, judge(p.problem, plan))
    assert full == "small"
    for context, fits in ((reach, True), (reach + 1, False)):
        again = posed(asked=Asked(2, context=context, grain="layer"), cluster=TIGHT)
        assert evaluate(again.problem, device_of).feasible is fits


def test_the_longest_context_fits_every_copy():
    """Of two copies of the network the one on the smaller device is full first, though the other comes first."""
    cluster = Cluster([device("big", 3, 300), device("small", 1, 25)], PAIR.links)
    asked = Asked(context=100, grain="layer", tied="apart")
    p = posed(asked=asked, objective=Throughput(), cluster=cluster)
    copies = (Copy(np.zeros(5, np.int32), 0.75), Copy(np.ones(5, np.int32), 0.25))
    plan = plan_for(p.problem, copies[0].device_of, copies=copies)
    reach, full = longest_context(p, plan, judge(p.problem, plan))
    assert full == "small"
    for context, fits in ((reach, True), (reach + 1, False)):
        again = posed(asked=replace(asked, context=context), objective=Throughput(), cluster=cluster)
        assert judge(again.problem, plan).feasible is fits


def test_tied_weights_are_together_or_copied():
    """Together they are held once on one device; apart each end has its copy, and a pipeline may part them."""
    config = {**TINY, "tie_word_embeddings": True}
    together, apart = (posed(config, Asked(context=100, tied=t)).problem for t in ("together", "apart"))
    assert together.graph.colocation == ((0, len(together.graph) - 1),) and not apart.graph.colocation
    assert apart.resident_bytes.sum() - together.resident_bytes.sum() == 2 * 4000 * 512
    assert apart.times.processing_s.tolist() == together.times.processing_s.tolist()


def test_batches_in_flight_have_their_own_caches():
    """A pipeline of three batches holds three times the cache of one."""
    one, three = (posed(asked=Asked(2, context=100, in_flight=k)).problem.resident_bytes.sum() for k in (1, 3))
    cache = 3 * 2 * 2 * 64 * 2 * 100 * 2
    assert three - one == 2 * cache


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 0}, "batch 0 is below 1"),
        ({"tied": "loosely"}, "tied 'loosely' is unknown; use one of together, apart"),
        ({"grain": "head"}, "grain 'head' is unknown; use one of layer, module, operator"),
        ({"generate": 5}, "generate 5 has no prompt"),
        ({"prompt": 100, "generate": 5, "context": 104}, "don't fit the context of 104"),
        ({"formats": Formats("fp7")}, "dtype 'fp7' is unknown"),
    ],
)
def test_what_cannot_be_asked_is_told(given, said):
    """Each names the value and the remedy."""
    with pytest.raises(InvalidInput, match=said):
        Asked(**given)

"""Many samples over threads as ranks: outputs, gradients and steps equal the unsplit network's for any placement."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_leaves  # noqa: E402

from placewright.errors import ExecutionError, InvalidInput  # noqa: E402
from placewright.execute.pipeline import samples as pipeline_samples  # noqa: E402
from placewright.execute.pipeline.orders import most_in_flight  # noqa: E402
from placewright.execute.pipeline.reference import largest_difference  # noqa: E402
from placewright.execute.pipeline.samples import all_inputs, loss_of, sample_inputs  # noqa: E402
from placewright.execute.pipeline.train_weights import learning, tracked_values  # noqa: E402
from placewright.execute.torch.local import relative_error  # noqa: E402
from placewright.plan import Copy, Plan  # noqa: E402
from placewright.problem import Problem  # noqa: E402

from ..small_torch import NETWORKS, Network, problem_of, random_plan  # noqa: E402
from ..threaded_ranks import Threaded, run_threads, threaded  # noqa: E402

SAMPLES = 5

SQUARES = f"py:{__name__}:squares"


class Wired(torch.nn.Module):
    """A skip over stages, an input that is read late, a tied weight, an in-place sum, a buffer of running means."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(5))
        self.norm = torch.nn.BatchNorm1d(6)
        self.frozen = torch.nn.Parameter(torch.randn(6), requires_grad=False)

    def forward(self, x: torch.Tensor, late: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = torch.tanh(self.layers[0](x))
        y = first
        for layer in self.layers[1:4]:
            y = torch.tanh(layer(y))
        y = self.layers[4](y)
        y += first
        y = torch.nn.functional.linear(self.norm(torch.relu_(y)) + late * self.frozen, self.layers[0].weight)
        return (y * y).mean(), y.argmax(1)


def wired() -> Network:
    return Wired().double(), (torch.randn(4, 6).double(), torch.randn(4, 6).double()), {}


@pytest.fixture(scope="module")
def networks() -> Callable[[str], Threaded]:
    """Each network is exported once."""
    made: dict[str, Threaded] = {}

    def get(name: str) -> Threaded:
        if name not in made:
            torch.manual_seed(0)
            made[name] = threaded(wired() if name == "wired" else NETWORKS[name]())
        return made[name]

    return get


def copies(problem: Problem, rng: np.random.Generator) -> Plan:
    """Three random placements of the network, with unequal shares."""
    plans = [random_plan(problem, rng) for _ in range(3)]
    return replace(plans[0], copies=[Copy(p.device_of, s) for p, s in zip(plans, (0.5, 0.3, 0.2), strict=True)])


def unsplit(given: Threaded, module: Any, sample: int) -> list[Any]:
    values = list(sample_inputs(given.inputs, sample).items())
    outputs = module(*((v for _, v in values) if given.args else ()), **({} if given.args else dict(values)))
    return tree_leaves(outputs)


@pytest.mark.parametrize("name", ["branches", "returns", "tiny_t5"])
def test_outputs_of_every_sample_equal_the_unsplit_networks(name: str, networks: Callable[[str], Threaded]) -> None:
    """Random placements and mixtures of them; a network that counts its calls sees its samples in their order."""
    if name.startswith("tiny"):
        pytest.importorskip("transformers")
    given = networks(name)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        problem = problem_of(given.graph, 3, rng)
        # What outlasts a sample is on one device: a mixture would have one of each.
        plan = random_plan(problem, rng) if seed == 0 or name == "branches" else copies(problem, rng)
        passed, _, _, pipeline = run_threads(given, problem, plan, SAMPLES, in_flight=2 + seed)
        assert max(p.most_kept for p in passed) <= pipeline.in_flight == 2 + seed
        module = copy.deepcopy(given.module)
        with torch.no_grad():
            for m in range(SAMPLES):
                made = {k: value for p in passed for k, value in p.outputs.get(m, {}).items()}
                expected = unsplit(given, module, m)
                assert relative_error([made[k] for k in sorted(made)], [expected[k] for k in sorted(made)]) <= 1e-5
                assert len(made) >= 1


def test_a_part_of_the_samples_is_as_in_the_whole(networks: Callable[[str], Threaded]) -> None:
    """Samples 2 and 3 of 5 alone, on the routes that they have among all, have their own outputs."""
    given = networks("returns")
    rng = np.random.default_rng(1)
    problem = problem_of(given.graph, 3, rng)
    passed, _, _, pipeline = run_threads(given, problem, copies(problem, rng), SAMPLES, part=(2, 2))
    assert pipeline.part(2, 2).dealt == pipeline.dealt[2:4]
    for m in range(2):
        (made,) = [p.outputs[m][0] for p in passed if 0 in p.outputs.get(m, {})]
        assert relative_error([made], unsplit(given, given.module, 2 + m)[:1]) <= 1e-5


def test_replicas_take_samples_in_turn(networks: Callable[[str], Threaded]) -> None:
    """Of a stage on devices 1 and 2 each takes every other sample; trained, both have the gradients of all five."""
    given = networks("returns")
    rng = np.random.default_rng(0)
    problem = problem_of(given.graph, 3, rng)
    half = len(given.graph) // 2
    plan = replace(random_plan(problem, rng), device_of=[0] * half + [1] * (len(given.graph) - half), replicas=[(1, 2)])
    passed, _, _, pipeline = run_threads(given, problem, plan, SAMPLES)
    assert [sorted(p.ended_s) for p in passed] == [[0, 1, 2, 3, 4], [0, 2, 4], [1, 3]]
    assert [r.share for r in pipeline.routes] == [0.5, 0.5]
    loss = own_loss(given.program, SQUARES)
    reference, _ = trained_unsplit(given, loss)
    expected = {t: p.grad for t, p in reference.named_parameters()}
    _, (first, *replicas), _, _ = run_threads(given, problem, plan, SAMPLES, "1f1b", loss=loss)
    for held in replicas:
        found = {t: p.grad for t, p in {**first.parameters, **held.parameters}.items()}
        assert set(found) == set(expected) and largest_difference(found, expected) <= 1e-5


def trained_unsplit(given: Threaded, loss: Any) -> tuple[Any, list[float]]:
    """Gradients of the mean loss, and the losses."""
    module, losses = copy.deepcopy(given.module), []
    for m in range(SAMPLES):
        parts = [loss(k, v, m) for k, v in enumerate(unsplit(given, module, m)) if isinstance(v, torch.Tensor)]
        total = sum(p for p in parts if p is not None)
        losses.append(float(total.detach()))
        (total / SAMPLES).backward()
    return module, losses


def own_loss(program: Any, spec: str | None = None) -> Any:
    return loss_of(program, tracked_values(program, learning(program)), spec)


def squares(value: torch.Tensor, position: int, sample: int) -> torch.Tensor:
    """A loss that tells outputs and samples apart."""
    return (1 + position + 0.1 * sample) * (value * value).mean()


@pytest.mark.parametrize("name", ["wired", "returns", "tiny_gpt2"])
def test_gradients_equal_the_unsplit_networks(name: str, networks: Callable[[str], Threaded]) -> None:
    """Skips, tied weights and late inputs; both orders; one placement, and copies whose gradients are added up."""
    if name.startswith("tiny"):
        pytest.importorskip("transformers")
    given = networks(name)
    loss = own_loss(given.program, None if name == "wired" else SQUARES)
    reference, losses = trained_unsplit(given, loss)
    expected = dict(reference.named_parameters())
    for seed, schedule in ((0, "1f1b"), (1, "gpipe"), (2, "1f1b")):
        rng = np.random.default_rng(seed)
        problem = problem_of(given.graph, 3, rng)
        plan = random_plan(problem, rng) if seed < 2 or name == "wired" else copies(problem, rng)
        frozen = ["frozen"] if name == "wired" else []
        passed, weights, _, _ = run_threads(given, problem, plan, SAMPLES, schedule, loss=loss, frozen=frozen)
        holders: dict[str, list[Any]] = {}
        for held in weights:
            for target, leaf in held.parameters.items():
                holders.setdefault(target, []).append(leaf.grad)
        assert set(holders) == {t for t, p in expected.items() if p.grad is not None}
        for k in range(max(map(len, holders.values()))):
            found = {t: rows[min(k, len(rows) - 1)] for t, rows in holders.items()}
            assert largest_difference(found, {t: expected[t].grad for t in found}) <= 1e-5
        for m, value in enumerate(losses):
            assert sum(p.losses.get(m, 0.0) for p in passed) == pytest.approx(value, rel=1e-5)


def test_steps_equal_the_unsplit_networks(networks: Callable[[str], Threaded]) -> None:
    """SGD and Adam on each rank's own weights, in double precision; running means move as if nothing were split."""
    given = networks("wired")
    loss = own_loss(given.program)
    rng = np.random.default_rng(3)
    problem = problem_of(given.graph, 3, rng)
    plan = random_plan(problem, rng)
    for made in (torch.optim.SGD, torch.optim.Adam):
        reference, _ = trained_unsplit(given, loss)
        expected = dict(reference.named_parameters())
        _, weights, _, _ = run_threads(given, problem, plan, SAMPLES, "1f1b", frozen=["frozen"])
        made([p for p in expected.values() if p.requires_grad], lr=0.05).step()
        seen = set()
        for held in weights:
            if held.parameters:
                made(list(held.parameters.values()), lr=0.05).step()
            for target, leaf in held.parameters.items():
                assert (leaf - expected[target]).abs().max() <= 1e-9
                seen.add(target)
        assert "frozen" not in seen and len(seen) == len(expected) - 1


def test_a_rank_keeps_no_more_samples_than_1f1b_allows(networks: Callable[[str], Threaded]) -> None:
    """A chain of three stages: the first has three samples under way, the last one; GPipe has all five everywhere."""
    given = networks("returns")
    rng = np.random.default_rng(0)
    problem = problem_of(given.graph, 3, rng)
    n = len(given.graph)
    plan = replace(random_plan(problem, rng), device_of=[3 * k // n for k in range(n)])
    for schedule, expected in (("1f1b", [3, 2, 1]), ("gpipe", [5, 5, 5])):
        _, _, _, pipeline = run_threads(given, problem, plan, SAMPLES, schedule, loss=own_loss(given.program, SQUARES))
        assert [most_in_flight(pipeline.actions(i)) for i in range(3)] == expected


def test_what_can_not_be_cut_is_refused(networks: Callable[[str], Threaded]) -> None:
    """A value that is written to while an older view of it is read in another part; a network without a loss."""
    given = networks("branches")
    rng = np.random.default_rng(0)
    problem = problem_of(given.graph, 3, rng)
    with pytest.raises(InvalidInput, match=r"operator '.*' writes to 'conv2d_1', which is read as 'slice_1' too"):
        run_threads(given, problem, random_plan(problem, rng), SAMPLES, "1f1b", loss=own_loss(given.program, SQUARES))
    program = networks("tiny_gpt2").program
    with pytest.raises(InvalidInput, match="returns no single number that depends on its weights"):
        own_loss(program)


class Lookup(torch.nn.Module):
    """A table behind two layers, with an index that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.table = torch.nn.Embedding(3, 4)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return self.layers[1](torch.tanh(self.layers[0](x))) + self.table(index)


def test_an_operator_that_fails_is_named() -> None:
    """Of a part with several operators the one that failed, and its device; not the part's first."""
    given = threaded((Lookup().eval(), (torch.randn(2, 4), torch.tensor([0, 1])), {}))
    given.inputs = {n: v + 7 if v.dtype == torch.int64 else v for n, v in given.inputs.items()}
    rng = np.random.default_rng(0)
    problem = problem_of(given.graph, 2, rng)
    plan = replace(random_plan(problem, rng), device_of=[0] * len(given.graph))
    with pytest.raises(ExecutionError, match=r"^operator 'table' on '.*' failed: index out of range"):
        run_threads(given, problem, plan, 2)


def test_inputs_that_take_too_much_memory_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of samples of 96 bytes 200 bytes hold two; of larger ones than the limit there is one."""
    given = {"a": torch.arange(12)}
    monkeypatch.setattr(pipeline_samples, "KEPT_BYTES", 200)
    made = all_inputs(given, 5)
    assert len(made) == 5 and made[0] is made[2] is made[4] and made[1] is made[3] is not made[0]
    monkeypatch.setattr(pipeline_samples, "KEPT_BYTES", 5)
    assert len({id(row) for row in all_inputs(given, 3)}) == 1


def test_samples_keep_the_values_of_the_given_one() -> None:
    """In another order, so that indices stay indices; a tensor that is given twice stays one; the first is as given."""
    tokens = torch.arange(12).reshape(3, 4)
    given = {"a": tokens, "b": tokens, "size": 3}
    assert sample_inputs(given, 0) == given
    made = sample_inputs(given, 1)
    assert made["a"] is made["b"] and made["size"] == 3
    assert made["a"].shape == (3, 4) and sorted(made["a"].flatten().tolist()) == list(range(12))
    assert not torch.equal(made["a"], tokens) and not torch.equal(made["a"], sample_inputs(given, 2)["a"])

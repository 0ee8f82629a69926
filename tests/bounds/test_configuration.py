"""The configuration bound against brute force, its parts against all sets and branch and cut, published values."""

from __future__ import annotations

import csv
import itertools
from math import inf

import highspy
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.algorithm import Budget
from placewright.bounds.max_load import certificate
from placewright.bounds.max_load.certificate import SLACK, Proof
from placewright.bounds.max_load.configuration import Configuration
from placewright.bounds.max_load.hypergraph import Hypergraph, hypergraph_of, incidence, reduced
from placewright.bounds.max_load.master import divided
from placewright.bounds.max_load.pricing import Pricing, best_order, states_of
from placewright.highs import new_highs
from placewright.io.partitioning_file import read_partitioning
from placewright.objective import MaxLoad
from placewright.problem import Problem
from tests.max_load.brute_force import optimum
from tests.max_load.random_problems import max_load_problems
from tests.workloads import FOLDER, workload

SOME = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)


def bound_of(problem: Problem, upper_s: float = inf, iterations: int = 60) -> float:
    """Bound from seed 0."""
    algorithm = Configuration(upper_s=lambda: upper_s)
    return algorithm(problem, budget=Budget(iterations=iterations), rng=np.random.default_rng(0)).lower_bound_s


@SOME
@given(max_load_problems(), st.sampled_from([inf, 3.0, 1.5, 1.1, 1.0]))
def test_the_bound_is_not_above_the_optimum(problem: Problem, factor: float) -> None:
    """Whatever the options, and whatever upper bound it is told, as long as that is one."""
    best = optimum(problem)
    assert bound_of(problem, best * factor) <= best


@pytest.mark.slow
@settings(SOME, max_examples=100)
@given(max_load_problems(replicate=False, contiguity="any"), st.sampled_from([inf, 1.5, 1.0]))
def test_the_bound_of_placements_without_order_is_not_above_the_optimum(problem: Problem, factor: float) -> None:
    """Where it matters most: unlike devices, CPUs, classes, wishes, links by pair, both passes."""
    best = optimum(problem)
    assert bound_of(problem, best * factor) <= best


@pytest.mark.slow
@SOME
@given(max_load_problems(replicate=False, contiguity="any", most_devices=4), st.sampled_from([1.5, 1.0]))
def test_merged_vertices_lie_together_in_some_placement(problem: Problem, factor: float) -> None:
    """The least value over all placements of the merged hypergraph is not above that of the hypergraph itself."""
    h = hypergraph_of(problem)
    best = least(h)
    if best < inf and len(h) <= 6:
        assert least(reduced(h, best * factor, Budget())) <= best * (1 + 1e-9)


def least(h: Hypergraph) -> float:
    """Value of the best placement of a hypergraph's vertices, from the definition of loads."""
    kind = [c for c, alike in enumerate(h.kinds) for _ in alike]
    if len(h) > 6:
        return inf
    best = inf
    for device in itertools.product(range(len(kind)), repeat=len(h)):
        load = [0.0] * len(kind)
        for v, i in enumerate(device):
            load[i] += float(h.time[kind[i], v])
        for e, row in enumerate(h.ends):
            used = {device[v] for v in row}
            for i in used if len(used) > 1 else ():
                load[i] += float(h.weight[kind[i], e])
        best = min(best, max(load))
    return best


def random_hypergraph(seed: int, n: int, edges: int, kinds: int = 1) -> Hypergraph:
    """Alike devices in pairs, one kind after the other; the last vertex may not be on the first kind now and then."""
    rng = np.random.default_rng(seed)
    ends = {tuple(sorted(rng.choice(n, int(rng.integers(2, 5)), replace=False).tolist())) for _ in range(edges)}
    time = rng.random((kinds, n)) * rng.choice([0.1, 1.0, 4.0], n)
    weight = rng.random((kinds, len(ends))) * rng.choice([0.1, 1.0, 3.0], len(ends))
    if seed % 3 == 0:
        time[0, n - 1] = inf
    devices = tuple((2 * c, 2 * c + 1) for c in range(kinds))
    groups = tuple((v,) for v in range(n))
    return Hypergraph(devices, np.ones(kinds, dtype=bool), time, tuple(sorted(ends)), weight, groups, True)


def pricing_of(h: Hypergraph, seed: int) -> Pricing:
    graph = incidence(len(h), h.ends)
    order = best_order(graph, 3, np.random.default_rng(seed), Budget())
    return Pricing(states_of(h, graph, order, np.arange(len(h.kinds)), 1e3, 10_000), order)


def load_by_hand(h: Hypergraph, kind: int, chosen: np.ndarray) -> float:
    """Load of a set, from its definition."""
    times = float(h.time[kind][chosen != 0].sum())
    return times + sum(
        float(h.weight[kind, e]) for e, row in enumerate(h.ends) if 0 < sum(int(chosen[v]) for v in row) < len(row)
    )


@pytest.mark.parametrize("seed", range(60))
def test_upper_bounds_are_not_below_the_best_of_all_sets(seed: int) -> None:
    """Nor are real sets above it, with 3 buckets as with 1,000; their loads and profits are what they should be."""
    rng = np.random.default_rng(seed)
    h = random_hypergraph(seed, int(rng.integers(4, 10)), int(rng.integers(3, 12)), 2)
    n, pricing, budget = len(h), pricing_of(h, seed), Budget()
    sets = np.array(list(itertools.product((0, 1), repeat=n)), dtype=np.int8)
    for kind in range(2):
        loads = np.array([load_by_hand(h, kind, x) for x in sets])
        assert pricing.load(kind, sets[-2]) == pytest.approx(min(loads[-2], 1e9), rel=1e-9) or loads[-2] == inf
        for _ in range(4):
            profit = rng.random(n) - 0.3 * (rng.random(n) < 0.3)
            limit = float(rng.choice(np.sort(loads[np.isfinite(loads)]))) * 1.001 + 1e-6
            best = float((sets @ profit)[loads <= limit].max())
            for floor in (0.0, 0.5 * best, 0.999 * best, best + 1e-9, 1.1 * best):
                for fineness in (3, 1000):
                    top = pricing.upper(kind, profit, limit, floor, fineness, budget)
                    assert top >= min(best, max(best, floor)) - 1e-12 and top >= floor
                    real, found = pricing.sets(kind, profit, limit, floor, fineness, budget)
                    assert real <= max(best, floor) + 1e-12
                    for x in found:
                        assert load_by_hand(h, kind, x) <= limit * (1 + 1e-12)
                        assert floor < float(x @ profit) <= best + 1e-12
            assert pricing.sets(kind, profit, limit, 0.0, 100_000, budget)[0] == pytest.approx(best, abs=1e-9)


def best_by_program(h: Hypergraph, profit: np.ndarray, limit: float) -> float:
    """Bound the best profit by branch and cut: vertices; of edges whether they are cut, have an end in, have all in."""
    solver = new_highs()
    n = len(h)
    for v in range(n):
        solver.addCol(-float(profit[v]), 0.0, 1.0 if np.isfinite(h.time[0, v]) else 0.0, 0, [], [])
        solver.changeColIntegrality(v, highspy.HighsVarType.kInteger)
    row = [(v, float(h.time[0, v])) for v in range(n) if np.isfinite(h.time[0, v])]
    for e, ends in enumerate(h.ends):
        cut, some, all_ = n + 3 * e, n + 3 * e + 1, n + 3 * e + 2
        for _ in range(3):
            solver.addCol(0.0, 0.0, 1.0, 0, [], [])
        row.append((cut, float(h.weight[0, e])))
        solver.addRow(0.0, inf, 3, np.array([cut, some, all_], dtype=np.int32), np.array([1.0, -1.0, 1.0]))
        for v in ends:
            solver.addRow(0.0, inf, 2, np.array([some, v], dtype=np.int32), np.array([1.0, -1.0]))
            solver.addRow(0.0, inf, 2, np.array([v, all_], dtype=np.int32), np.array([1.0, -1.0]))
    columns, values = zip(*row, strict=True)
    solver.addRow(-inf, limit, len(row), np.array(columns, dtype=np.int32), np.array(values))
    solver.run()
    return -float(solver.getInfo().mip_dual_bound)


@pytest.mark.parametrize("seed", range(6))
def test_certificates_of_middle_size_hold_by_a_program_of_their_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the prices accepted for 40 vertices on three devices branch and cut bounds the best set as well."""
    accepted = []
    proves = Proof.proves

    def recorded(proof: Proof, prices: np.ndarray, share: np.ndarray, limit: float, *rest: object) -> bool:
        done = proves(proof, prices, share, limit, *rest)  # type: ignore[arg-type]
        if done:
            accepted.append((prices.copy(), limit))
        return done

    monkeypatch.setattr(certificate.Proof, "proves", recorded)
    rng = np.random.default_rng(seed)
    n = 40
    ends = {(v, v + 1) for v in range(n - 1)} | {(v, v + int(rng.integers(2, 6))) for v in range(0, n - 6, 3)}
    time, weight = rng.uniform(0.1, 2.0, (1, n)), rng.uniform(0.1, 3.0, (1, len(ends)))
    h = Hypergraph(
        ((0, 1, 2),), np.ones(1, dtype=bool), time, tuple(sorted(ends)), weight, tuple((v,) for v in range(n)), True
    )
    top = float(time.sum())
    proof = Proof(h, pricing_of(h, seed), None, lambda: top, 0.0, Budget(iterations=40), lambda lower: None)
    proof.run()
    assert proof.own_s > top / 3
    prices, limit = max(accepted, key=lambda row: row[1])
    assert limit == proof.own_s
    assert 3 * best_by_program(h, prices, limit * (1 - 1e-6)) <= float(prices.sum()) * (1 + 1e-6)


def test_divided_vertices_fill_a_device_by_profit_per_second() -> None:
    """Profits 3, 2, 1 for 2, 2, 0 s in 3 s: the free one, the first, half the second; too long ones are left out."""
    profit, time = np.array([3.0, 2.0, 1.0, 9.0]), np.array([2.0, 2.0, 0.0, 5.0])
    assert divided(profit, time, 4.0, 3.0) == pytest.approx(5.0)
    assert divided(profit, time, 1.0, 3.0) == pytest.approx(1.0)
    assert divided(-profit, time, 9.0, 99.0) == 0.0


def test_slack_is_above_the_rounding_errors_of_the_sums() -> None:
    """A thousand sums of a thousand numbers in another order differ by far less than the slack of certificates."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        x = rng.random(1000)
        assert abs(sum(x.tolist()) - sum(sorted(x.tolist()))) < 1e-3 * SLACK * x.sum()


@pytest.mark.parametrize("why", ["replicas", "wide"])
def test_out_of_reach_means_no_bound_and_a_reason(why: str, caplog: pytest.LogCaptureFixture) -> None:
    """Replicas are no sets on devices; forty tensors that are open at once are too many states."""
    from placewright.cluster import Cluster, Device, Link
    from placewright.graph import Operator, OperatorGraph, Tensor

    n = 80
    graph = OperatorGraph(
        [Operator(f"v{k}") for k in range(n)],
        [Tensor(f"t{k}.{j}", k, (40 + (k * (j + 3) + 7 * j) % 40,), 1) for k in range(40) for j in range(4)],
    )
    cluster = Cluster([Device("d0"), Device("d1")], [Link(0.0, 1.0, link_class="same-host")])
    problem = Problem(graph, cluster, np.ones((n, 2)) * 4, MaxLoad("any", replicate=why == "replicas"))
    with caplog.at_level("INFO"):
        assert bound_of(problem) == 0.0
    assert ("replicated" if why == "replicas" else "states") in caplog.text


def published() -> list[tuple[str, float]]:
    """File and value in ms of the workloads whose optimum without order is known to be proved."""
    path = FOLDER / "reference.csv"
    if not path.is_file():
        return []
    with path.open() as file:
        rows = [r for r in csv.DictReader(file) if r["problem"] == "max-load-non-contiguous"]
    small = ("bert_l-3", "bert24", "op_resnet50")
    return [
        (r["file"], float(r["value"]))
        for r in rows
        if r["method"] == "best-known" and any(part in r["file"] for part in small)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "value"), published() or [("dnn-partitioning/throughput", 0.0)])
def test_published_workloads_are_proved_optimal(file: str, value: float) -> None:
    """Told the best known value, the bound meets it to 1e-6 within 300 linear programs."""
    problem = read_partitioning(workload(file), MaxLoad("any"))
    assert value * 1e-3 * (1 - 2e-6) <= bound_of(problem, value * 1e-3, 300) <= value * 1e-3 * (1 + 1e-6)

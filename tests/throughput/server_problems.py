"""Tiny clusters of servers with small networks, and the best time per sample by trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

import placewright as pw
from placewright.highs import new_highs


@st.composite
def server_problems(
    draw: st.DrawFn, most_operators: int = 4, most_devices: int = 4, training: bool | None = None
) -> pw.Problem:
    """One or two kinds of hosts with equal devices each, memory that may bind, networks with skips, both passes."""
    per_host = draw(st.sampled_from([1, 1, 2]))
    hosts = draw(st.integers(1, max(1, most_devices // per_host)))
    kinds = [draw(st.integers(0, 1)) for _ in range(hosts)]
    forward = draw(st.integers(1, most_operators))
    trains = draw(st.booleans()) if training is None else training
    memory = [draw(st.sampled_from([None, 2, 3, 4, 6])) for _ in range(2)]
    devices = [
        pw.Device(f"h{h}.{k}", host=f"h{h}", memory_bytes=memory[kinds[h]])
        for h in range(hosts)
        for k in range(per_host)
    ]
    nic = draw(st.sampled_from(["", "", "nic"]))
    links = [
        pw.Link(draw(st.sampled_from([0.0, 0.125])), draw(st.sampled_from([8.0, 16.0])), link_class="same-host"),
        pw.Link(
            draw(st.sampled_from([0.0, 0.25])),
            draw(st.sampled_from([4.0, 8.0])),
            link_class="between-hosts",
            channel=nic,
        ),
    ]
    operators = [pw.Operator(f"v{k}", weight_bytes=draw(st.integers(0, 3))) for k in range(forward)]
    tensors = []
    for u in range(forward - 1):
        readers = {u + 1} if draw(st.integers(0, 3)) else set()
        readers |= draw(st.sets(st.integers(u + 1, forward - 1), max_size=1))
        if readers:
            tensors.append(pw.Tensor(f"t{u}", u, tuple(sorted(readers)), draw(st.integers(0, 8))))
    classes = []
    if trains:
        back = {v: 2 * forward - 1 - v for v in range(forward)}
        operators += [pw.Operator(f"b{v}", backward=True) for v in range(forward - 1, -1, -1)]
        tensors += [
            pw.Tensor(f"g{t.producer}.{v}", back[v], (back[t.producer],), draw(st.integers(0, 8)))
            for t in tensors
            for v in t.readers
        ]
        classes = [(v, back[v]) for v in range(forward)]
    eighth = st.integers(1, 32).map(lambda k: k / 8)
    times = [[draw(eighth), draw(eighth)] for _ in operators]
    overlap = draw(st.sampled_from(["none", "none", "none", "transfers", "full"]))
    objective = pw.Throughput(
        overlap=overlap,
        busy_share=0.0 if overlap == "none" else draw(st.sampled_from([0.0, 0.3, 0.3, 1.0])),
        sync_period=draw(st.integers(1, 4)),
        sync_bandwidth_bytes_per_s=draw(st.sampled_from([None, 4.0, 32.0])),
    )
    processing = np.array(times)[:, [kinds[int(d.host[1:])] for d in devices]]
    graph = pw.OperatorGraph(operators, tensors, classes)
    return pw.Problem(graph, pw.Cluster(devices, links), processing, objective)


def best_by_trying(problem: pw.Problem) -> float:
    """Best time per sample: for all that devices may hold, the best shares of all placements within it.

    What devices hold decides memory and synchronisation; then shares are a linear program.
    """
    D = len(problem.cluster)
    units = sorted(set(problem.graph.unit_of))
    unit_of = np.array(problem.graph.unit_of)
    placements, parts = [], []
    free = pw.Cluster(
        [pw.Device(d.name, host=d.host, kind=d.kind) for d in problem.cluster.devices], problem.cluster.links
    )
    relaxed = pw.Problem(problem.graph, free, problem.times, problem.objective, problem.wishes)
    for choice in product(range(D), repeat=len(units)):
        judged = pw.evaluate(relaxed, np.array(choice)[unit_of])
        if judged.feasible:
            placements.append(choice)
            parts.append(_rows(problem, judged))
    best = float("inf")
    weights = np.bincount(unit_of, weights=[v.weight_bytes for v in problem.graph.operators])
    resident = np.bincount(unit_of, weights=problem.resident_bytes)
    subsets = [s for s in product((False, True), repeat=D) if any(s)]
    syncs = any(v.backward for v in problem.graph.operators)
    for holders in product(subsets, repeat=len(units)):
        held = np.array(holders)
        if ((resident @ held) > problem.cluster.capacity_bytes).any():
            continue
        within = [k for k, p in enumerate(placements) if all(held[u, i] for u, i in enumerate(p))]
        if not within or not all(any(held[u, i] for k in within for i in [placements[k][u]]) for u in units):
            continue
        sync = _sync(problem, weights, held) if syncs else np.zeros(D)
        best = min(best, _shares(np.array([parts[k] for k in within]), sync, problem))
    return best


def _rows(problem: pw.Problem, judged: pw.Evaluation) -> list[float]:
    """Loads of which sums over copies count, by overlap; then those of the channels."""
    rows: list[float] = []
    for use in judged.devices:
        (load,) = use.loads
        overlap, sent = problem.objective.overlap, load.in_s + load.out_s
        busy = load.compute_s + problem.objective.busy_share * sent
        if overlap == "none":
            rows.append(load.compute_s + load.in_s + load.out_s)
        elif overlap == "transfers":
            rows += [busy, sent]
        else:
            rows += [busy, load.in_s, load.out_s]
    return rows + [c.load_s[0] for c in judged.channels]


def _sync(problem: pw.Problem, weights: np.ndarray, held: np.ndarray) -> np.ndarray:
    seconds = np.zeros(held.shape[1])
    for u, row in enumerate(held):
        devices = np.flatnonzero(row)
        r = len(devices)
        if r > 1 and weights[u]:
            given = problem.objective.sync_bandwidth_bytes_per_s
            rate = given or min(
                problem.cluster.links[problem.cluster.rule_of[i, j]].bandwidth_bytes_per_s
                for i in devices
                for j in devices
                if i != j
            )
            seconds[devices] += 2 * (r - 1) / r * weights[u] / rate / problem.objective.sync_period
    return seconds


def _shares(parts: np.ndarray, sync: np.ndarray, problem: pw.Problem) -> float:
    """Minimise T: sum of shares 1, and each row's mixed load plus synchronisation is within T."""
    import highspy

    endless = float(highspy.kHighsInf)
    per_device = {"none": 1, "transfers": 2, "full": 3}[problem.objective.overlap]
    extra = np.zeros(parts.shape[1])
    extra[: len(sync) * per_device] = np.repeat(sync, per_device)
    solver = new_highs()
    none, empty = np.array([], dtype=np.int32), np.array([])
    for _ in parts:
        solver.addCol(0.0, 0.0, endless, 0, none, empty)
    solver.addCol(1.0, 0.0, endless, 0, none, empty)
    K = len(parts)
    solver.addRow(1.0, 1.0, K, np.arange(K, dtype=np.int32), np.ones(K))
    for m in range(parts.shape[1]):
        solver.addRow(-endless, -extra[m], K + 1, np.arange(K + 1, dtype=np.int32), np.array([*parts[:, m], -1.0]))
    solver.run()
    return float(solver.getInfo().objective_function_value)

"""Eight models on six clusters that people describe: our plans against the splits of the tools that they use.

Every placement is judged on the same problem by the same judge: accelerate's own ``infer_auto_device_map`` with
``max_memory`` as it is (``auto``) and by ``get_balanced_memory`` (``balanced``); of decoders llama.cpp's split of whole
layers in proportion to the memory of the GPUs, with as many layers on them as fit (``llama.cpp``), and layers in
proportion to the memory of all GPUs, or of all CPUs where there are none, as exo has them (``exo``); as many layers
on each of the same devices (``equal``); and the best single device. Room for the KV cache is taken off the
memory that each of them is told, in proportion to the weights. A plan that is worse than one of them ends the run.

Run ``python -m benchmarks.quality.language_models -o rows.jsonl [--budget 4] [--page PAGE.md]``. What ``-o`` has is not
done again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
from benchmarks.quality.language_models_page import DOES_NOT_FIT, WAYS, page

from placewright.capture import capture
from placewright.cluster import Cluster
from placewright.costs import analytic
from placewright.costs.weight_formats import weight_format
from placewright.evaluate import evaluate
from placewright.graph import OperatorGraph
from placewright.io import read_cluster
from placewright.language import Asked, Formats, LanguageModel, pose_model, read_language_model
from placewright.language.asked import Tied
from placewright.objective import Makespan, MaxLoad, Objective
from placewright.problem import Problem
from placewright.solve import solve

CLUSTERS = ("3090-3060", "4090-3090-64gb", "24-12-8-gb", "two-v100-and-a100", "four-mini-pcs", "mac-and-pc")
MODELS = {
    "llama-3.1-8b": None,
    "llama-3.1-70b": "q4_k_m",
    "mixtral-8x7b": "q4_k_m",
    "qwen3-30b-a3b": "q8_0",
    "deepseek-v2-lite": None,
    "gemma-3-27b": "q8_0",
    "whisper-large-v3": None,
    "sdxl-unet": None,
}
"""With the format of their weights; ``None``: as published, in 16 bits."""

CONTEXT = 8192
DOES_NOT_APPLY = ""
CLOSE = 1e-9
"""Relative difference that rounding makes."""
EXAMPLES = Path(__file__).parents[2] / "examples"

Split: TypeAlias = list[int] | str
"""Device of each operator, or why there is none."""


@dataclass(frozen=True)
class Case:
    """A problem, and the model that it is of; ``None`` for a captured network."""

    problem: Problem
    model: LanguageModel | None

    @property
    def cluster(self) -> Cluster:
        """Of the problem."""
        return self.problem.cluster

    @property
    def accelerators(self) -> list[int]:
        """Devices that are split over: all but CPUs, or all where there are CPUs alone."""
        kinds = [d.kind for d in self.cluster.devices]
        return [i for i, kind in enumerate(kinds) if kind != "cpu"] or list(range(len(kinds)))

    @property
    def decodes_only(self) -> bool:
        """Whether it is a decoder alone, as those are that tools split by layers."""
        return self.model is not None and all(p.stream in ("text", "last") for p in self.model.parts)

    def layer_of(self) -> list[int]:
        """Which layer each operator belongs to: of decoder and encoder, in order; -1 before them, -2 the head."""
        layers: dict[str, int] = {}
        assert self.model is not None
        layer = {p.name: p.layer for p in self.model.parts}
        found = []
        for v in self.problem.graph.operators:
            name = layer[v.part_names[0]]
            numbered = any(part.isdigit() for part in name.split("."))
            is_head = name in ("lm_head", "proj_out")
            found.append(layers.setdefault(name, len(layers)) if numbered else -2 if is_head else -1)
        return found

    def room_for_weights(self) -> list[float]:
        """Bytes that each device has for weights when the cache of its layers is beside them."""
        weights = sum(v.weight_bytes for v in self.problem.graph.operators)
        cache = sum(v.kv_cache_bytes for v in self.problem.graph.operators)
        return [d.capacity_bytes * weights / (weights + cache) for d in self.cluster.devices]

    def by_layers(self, devices: Sequence[int], shares: Sequence[float], first: int) -> list[int]:
        """Layers in order over devices by their shares; what is before them on ``first``, the head on the last."""
        layer = self.layer_of()
        count = max(layer) + 1
        ends = np.cumsum(shares) / sum(shares)
        on = [devices[int(np.searchsorted(ends, (k + 0.5) / count))] for k in range(count)]
        return [first if k == -1 else on[-1] if k == -2 else on[k] for k in layer]


def exo(case: Case) -> Split:
    """Put layers on accelerators in proportion to their memory, the largest first; on CPUs where there are none."""
    if not case.decodes_only:
        return DOES_NOT_APPLY
    room = case.room_for_weights()
    order = sorted(case.accelerators, key=lambda i: -room[i])
    return case.by_layers(order, [room[i] for i in order], order[0])


def equal(case: Case) -> Split:
    """Give each accelerator the same number of layers, or the same bytes of weights of what has no layers in a row."""
    devices = case.accelerators
    if case.decodes_only:
        return case.by_layers(devices, [1.0] * len(devices), devices[0])
    weights = np.array([v.weight_bytes for v in case.problem.graph.operators], dtype=float)
    middle = (np.cumsum(weights) - weights / 2) / weights.sum()
    return [devices[min(int(m * len(devices)), len(devices) - 1)] for m in middle]


def llama_cpp(case: Case) -> Split:
    """Put the last layers on GPUs by their memory, as many as fit; the others and the embedding on the CPU."""
    if not case.decodes_only:
        return DOES_NOT_APPLY
    kinds = [d.kind for d in case.cluster.devices]
    gpus, cpus = [i for i, k in enumerate(kinds) if k != "cpu"], [i for i, k in enumerate(kinds) if k == "cpu"]
    if not gpus:
        return exo(case)
    room, layer = case.room_for_weights(), case.layer_of()
    count = max(layer) + 1
    cpu = cpus[0] if cpus else gpus[0]
    for offloaded in range(count, -1, -1):
        ends = np.cumsum([room[i] for i in gpus]) / sum(room[i] for i in gpus)
        on = [cpu] * (count - offloaded)
        on += [gpus[int(np.searchsorted(ends, (k + 0.5) / offloaded))] for k in range(offloaded)]
        device_of = [cpu if k == -1 else (on[-1] if offloaded == count else cpu) if k == -2 else on[k] for k in layer]
        if evaluate(case.problem, together(case, device_of)).feasible:
            return device_of
    return DOES_NOT_FIT


@cache
def module_of(name: str) -> Any:
    """Build the module of a configuration on meta, once."""
    import transformers
    from accelerate import init_empty_weights

    given = json.loads((EXAMPLES / "configs" / f"{name}.json").read_text())
    with init_empty_weights():
        if "_class_name" in given:
            from diffusers import UNet2DConditionModel

            return UNet2DConditionModel.from_config(given)
        config = transformers.AutoConfig.for_model(**given)
        whisper = given["model_type"] == "whisper"
        auto = transformers.AutoModelForSpeechSeq2Seq if whisper else transformers.AutoModelForCausalLM
        module = auto.from_config(config)
    module.tie_weights()
    return module


def one_device(case: Case) -> Split:
    """Put all on the device that is best alone."""
    n, D = len(case.problem.graph), len(case.cluster)
    judged = {i: evaluate(case.problem, [i] * n) for i in range(D)}
    fits = [i for i in range(D) if judged[i].feasible]
    return [min(fits, key=lambda i: judged[i].value_s)] * n if fits else DOES_NOT_FIT


def accelerate(case: Case, balanced: bool) -> Split:
    """Ask accelerate for its map of transformers' own module on meta; GPUs are numbered, the CPU is ``cpu``."""
    import torch
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    if len({d.host for d in case.cluster.devices}) > 1:
        return DOES_NOT_APPLY
    module = module_of(case.problem.name.partition(",")[0])
    weights = sum(v.weight_bytes for v in case.problem.graph.operators)
    scale = 2 * sum(p.numel() for p in module.parameters()) / weights  # it counts 16 bits a weight
    kinds = [d.kind for d in case.cluster.devices]
    numbers = {i: k for k, i in enumerate(i for i, kind in enumerate(kinds) if kind != "cpu")}
    room = case.room_for_weights()
    memory: dict[Any, int] = {numbers.get(i, "cpu"): int(r * scale) for i, r in enumerate(room)}
    names = module._no_split_modules
    if balanced:
        memory = get_balanced_memory(module, memory, no_split_module_classes=names, dtype=torch.float16)
    mapped = infer_auto_device_map(module, memory, no_split_module_classes=names, dtype=torch.float16)
    back = {numbers.get(i, "cpu"): i for i in range(len(kinds))}
    if any(where not in back for where in mapped.values()):
        return DOES_NOT_FIT  # it names the disk
    graph = case.problem.graph
    device_of: list[int] = []
    for k, v in enumerate(graph.operators):
        at = v.part_names[0]
        while at and at not in mapped:
            at = at.rpartition(".")[0]  # the whole model is called ''
        # What the model computes outside of its modules is where what it reads is.
        before = device_of[graph.predecessors[k][0]] if graph.predecessors[k] else back[next(iter(mapped.values()))]
        device_of.append(back[mapped[at]] if at in mapped else before)
    return device_of


def together(case: Case, device_of: list[int]) -> list[int]:
    """Tied weights where the first of them is."""
    placed = list(device_of)
    for members in case.problem.graph.colocation:
        for v in members:
            placed[v] = placed[members[0]]
    return placed


SPLITS: Mapping[str, Callable[[Case], Split]] = {
    "auto": lambda case: accelerate(case, False),
    "balanced": lambda case: accelerate(case, True),
    "llama.cpp": llama_cpp,
    "exo": exo,
    "equal": equal,
    "one device": one_device,
}


def case_of(name: str, cluster: Cluster, objective: Objective, tied: Tied = "apart") -> Case:
    """Pose a model as people run it: one sequence, and under max-load one a device."""
    if name == "sdxl-unet":
        graph = captured(name)
        return Case(Problem(graph, cluster, analytic(graph, cluster), objective), None)
    model = read_language_model(f"hf:{EXAMPLES / 'configs' / name}.json").model
    bits = MODELS[name]
    formats = Formats(model.dtype or "bf16", None if bits is None else weight_format(bits))
    context = min(CONTEXT, model.longest or CONTEXT)
    in_flight = 1 if isinstance(objective, Makespan) else len(cluster)
    asked = Asked(context=context, formats=formats, in_flight=in_flight, tied=tied)
    return Case(pose_model(model, cluster, asked, objective, analytic).problem, model)


@cache
def captured(name: str) -> OperatorGraph:
    """Capture a denoiser once."""
    graph = capture(f"hf:{EXAMPLES / 'configs' / name}.json")
    return OperatorGraph(graph.operators, graph.tensors, graph.colocation, name)


def row_of(name: str, where: str, objective: Objective, budget_s: float) -> dict[str, Any]:
    """Our plan, its bound, and the tools' placements on one problem.

    Tied weights are copied where embedding and head are apart, as llama.cpp does; accelerate keeps them together, which
    we may do as well.
    """
    cluster = read_cluster(EXAMPLES / f"{where}.yaml")
    cases = {tied: case_of(name, cluster, objective, tied) for tied in get_args(Tied)}
    if not cases["together"].problem.graph.colocation:
        del cases["together"]
    results = [solve(case.problem, budget=budget_s / len(cases)) for case in cases.values()]
    result = min(results, key=lambda r: r.value_s)
    row: dict[str, Any] = {"model": name, "cluster": where, "objective": objective.name}
    row["value_s"] = result.value_s if result.plan is not None else None
    bound = min(r.lower_bound_s for r in results)
    row["gap"] = 1 - bound / result.value_s if result.plan is not None else None
    row["devices"] = 0 if result.plan is None else len(result.plan.devices_used)
    for way, split in SPLITS.items():
        case = cases.get("together" if way in ("auto", "balanced") else "apart", cases["apart"])
        found = split(case)
        if isinstance(found, str):
            row[way] = found
            continue
        judged = evaluate(case.problem, together(case, found))
        row[way] = judged.value_s if judged.feasible and np.isfinite(judged.value_s) else DOES_NOT_FIT
    known = [row[way] for way in WAYS if isinstance(row[way], float)]
    assert not known or (result.plan is not None and result.value_s <= min(known) * (1 + CLOSE)), row
    return row


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows that are done; none without a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Do the cells that are not done; ``--page`` writes tables and text of them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=4.0)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    parser.add_argument("--objective", choices=("makespan", "max-load"), help="by default both")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    rows = read_rows(given.output)
    done = {(row["model"], row["cluster"], row["objective"]) for row in rows}
    objectives: tuple[Objective, ...] = (Makespan(per="token"), MaxLoad(contiguity="any"))
    for name, where, objective in product(given.models.split(","), given.clusters.split(","), objectives):
        if given.objective not in (None, objective.name) or (name, where, objective.name) in done:
            continue
        rows.append(row_of(name, where, objective, given.budget))
        with given.output.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if given.page is not None:
        given.page.write_text(page(rows, given.budget))


if __name__ == "__main__":
    main()

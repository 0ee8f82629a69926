"""Options that several commands of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "Batch",
    "BudgetText",
    "BusyShare",
    "CacheDtypeName",
    "CallsText",
    "CataloguePath",
    "ClusterPath",
    "Coarsen",
    "ConfigPath",
    "ContentionName",
    "ContextText",
    "Contiguous",
    "Convex",
    "CostsName",
    "CpusAnywhere",
    "Description",
    "DeviceCount",
    "Distributed",
    "DuplicateBelow",
    "ExpertPath",
    "Fold",
    "Forbids",
    "Fuse",
    "Inference",
    "MeetingPlace",
    "MicroBatches",
    "Model",
    "ObjectiveName",
    "OptimizerName",
    "OverlapName",
    "Pins",
    "PlanPath",
    "ProblemPath",
    "Rank",
    "RecomputeName",
    "Replicate",
    "ReportPath",
    "ScheduleName",
    "Seed",
    "Speeds",
    "SyncBandwidth",
    "SyncPeriod",
    "Togethers",
    "TracePath",
    "TrainingName",
    "TransfersName",
    "WeightFormatName",
    "WorkerCount",
    "Workspace",
]

Model = Annotated[
    str,
    typer.Argument(
        help=".onnx or .pt2 file, py:package.module:function, hf:DIR with a config.json or a model_index.json, "
        "a PipeDream profile (.txt), a Moirai sheet (.xls), or a problem file or dnn-partitioning workload (.json)",
        metavar="MODEL",
    ),
]
PlanPath = Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")]
ProblemPath = Annotated[
    Path, typer.Argument(help="A problem file or workload, or a plan file that carries its problem.")
]
ClusterPath = Annotated[
    Path | None,
    typer.Option(
        "--cluster", "-c", help="Cluster file, YAML or JSON; or devices of the catalogue: rtx-3090+rtx-3060-12gb+64GiB."
    ),
]


def _use(path: Path | None) -> Path | None:
    if path is not None:
        from placewright.catalogue import use

        use(path)
    return path


CataloguePath = Annotated[
    Path | None,
    typer.Option("--catalogue", callback=_use, help="Your hardware catalogue, over the one that is shipped."),
]
BudgetText = Annotated[str, typer.Option("--budget", help="How long to search, e.g. 60s or 2min.")]
Coarsen = Annotated[
    str,
    typer.Option(
        "--coarsen",
        help="Makespan: what is placed as one for half of the budget: none, chains, or blocks (repeated layers).",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the random numbers; recorded in the plan.", min=0)]
ExpertPath = Annotated[
    Path | None, typer.Option("--expert", help="Split of dnn-partitioning (.json): what the solver 'expert' judges.")
]
Fuse = Annotated[
    str | None,
    typer.Option(
        "--fuse",
        help="By whose rules operators that run as one are placed as one: auto, onnxruntime, onnxruntime-cuda, "
        "inductor, tensorrt, or none. By default auto; a problem file is placed as it stands.",
    ),
]
Fold = Annotated[
    str | None,
    typer.Option(
        "--fold",
        help="auto, the default: operators that follow from weights alone are computed once and held as weights; "
        "none: they are placed. Of a captured torch network; an ONNX file's always are.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
ReportPath = Annotated[Path | None, typer.Option("--report", help="Write an HTML page.")]
TracePath = Annotated[Path | None, typer.Option("--trace", help="Write a trace for Perfetto or chrome://tracing.")]

DeviceCount = Annotated[int | None, typer.Option("--devices", help="How many devices of this machine.", min=1)]
WorkerCount = Annotated[
    int | None, typer.Option("--workers", help="How many workers; without --at all are started here.", min=2)
]
Distributed = Annotated[
    bool, typer.Option("--distributed", help="Measure between the workers that torchrun started, this one among them.")
]
MeetingPlace = Annotated[str | None, typer.Option("--at", help="HOST:PORT of the worker with rank 0.")]
Rank = Annotated[int | None, typer.Option("--rank", help="Which worker this is, from 0.", min=0)]
Description = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Measure nothing: read what 'nvidia-smi topo -m' printed, or topology XML of NCCL or hwloc (lstopo).",
    ),
]

ObjectiveName = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="makespan: time for one sample; token-latency: time for a token of a language model; "
        "max-load: time per sample of a pipeline; "
        "throughput: the same with copies of the network side by side; "
        "offload: time for one sample when accelerators take subgraphs off a pool of CPUs.",
    ),
]
ContentionName = Annotated[
    str | None, typer.Option("--contention", help="Makespan: how transfers exclude each other: none, link or port.")
]
CallsText = Annotated[
    str | None, typer.Option("--calls", help="Offload: most subgraphs of an accelerator, a number, or any.")
]
Contiguous = Annotated[
    bool | None,
    typer.Option(
        "--contiguous/--non-contiguous",
        help="Max-load, throughput: whether the devices have an order along which all edges go forward.",
    ),
]
Convex = Annotated[
    bool | None, typer.Option("--convex", help="Instead: no path leaves a device and comes back, which is weaker.")
]
CpusAnywhere = Annotated[
    bool | None, typer.Option("--cpus-anywhere/--cpus-in-order", help="Whether CPUs are free of that order.")
]
TrainingName = Annotated[
    str | None, typer.Option("--training-objective", help="Max-load: sum, max(F + B), or separate, max F + max B.")
]
OverlapName = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        help="Max-load, throughput: what overlaps computing: none, transfers (together), or full (in, out).",
    ),
]
BusyShare = Annotated[
    float | None,
    typer.Option("--busy-share", help="Of such overlap: part of a transfer that devices are busy, 0 to 1."),
]
Replicate = Annotated[
    bool | None, typer.Option("--replicate/--no-replicate", help="Max-load: whether stages run on several devices.")
]
SyncPeriod = Annotated[
    int | None, typer.Option("--sync-period", help="Samples between two synchronisations of weights.", min=1)
]
SyncBandwidth = Annotated[
    str | None, typer.Option("--sync-bandwidth", help="Of a synchronisation, e.g. '10 GB/s'; by default the links'.")
]
Pins = Annotated[list[str] | None, typer.Option("--pin", help="PATTERN=DEVICE: these run only there. Repeatable.")]
Forbids = Annotated[
    list[str] | None, typer.Option("--forbid", help="PATTERN=DEVICE: these never run there. Repeatable.")
]
Togethers = Annotated[
    list[str] | None, typer.Option("--together", help="PATTERN: all operators of this name share a device. Repeatable.")
]
CostsName = Annotated[
    str,
    typer.Option(
        "--costs",
        help="auto, profile (measure what is here), analytic (from the devices' figures, by size-dependent curves) or "
        "roofline (by constant efficiencies).",
    ),
]
Speeds = Annotated[
    list[str] | None,
    typer.Option("--speed", help="PATTERN=FACTOR: of a profile, how fast devices are; 1: as the profiled. Repeatable."),
]
TransfersName = Annotated[
    str | None,
    typer.Option(
        "--transfers",
        help="per-device: a tensor travels once to each device that reads it; per-edge: once for each reader. "
        "By default per-edge for Moirai sheets, else per-device.",
    ),
]
DuplicateBelow = Annotated[
    str | None,
    typer.Option(
        "--duplicate-below",
        metavar="SECONDS",
        help="Compute operators of at most so long (e.g. 50us) wherever they are read; 0s: none. "
        "By default the trivial ones of a captured network.",
    ),
]
ContextText = Annotated[
    str | None,
    typer.Option("--context", help="Tokens of each sequence that the KV cache has room for, e.g. 32k (32,768)."),
]
Batch = Annotated[
    int | None, typer.Option("--batch", help="Sequences that have caches, or pictures, at a time.", min=1)
]
WeightFormatName = Annotated[
    str | None,
    typer.Option("--weight-format", help="Of weights in memory: q4_k_m, q8_0, nf4, awq, ... or bits per weight."),
]
CacheDtypeName = Annotated[
    str | None, typer.Option("--cache-dtype", help="Of the KV cache: bf16, fp8, q8_0, ...; by default as computed in.")
]
ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config", help="With --context: Hugging Face config.json, or its folder: what layers keep of a token."
    ),
]
Workspace = Annotated[
    bool | None,
    typer.Option("--workspace", help="Torch network: count what comes and goes while an operator runs, too."),
]
OptimizerName = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        help="Torch network or profile: count what training holds: gradients, this optimiser's state (sgd, momentum, "
        "adamw, adamw-mixed, adamw-8bit...) and what is saved for the backward pass.",
    ),
]
MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", help="With --optimizer: of a training step.", min=1)
]
ScheduleName = Annotated[
    str | None, typer.Option("--schedule", help="With --optimizer: of the pipeline: 1f1b, the default, or gpipe.")
]
RecomputeName = Annotated[
    str | None,
    typer.Option("--recompute", help="With --optimizer: none, or full: layers keep their inputs alone."),
]
Inference = Annotated[bool, typer.Option("--inference", help="Of a profile: the forward pass alone.")]

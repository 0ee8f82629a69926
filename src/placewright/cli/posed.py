"""What a command line says of a problem: the options of every command that poses one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.cli.model_options import (
    DtypeName,
    GenerateText,
    GrainName,
    Guidance,
    InFlight,
    PromptText,
    SizeText,
    StepCount,
    TiedName,
)
from placewright.cli.options import (
    Batch,
    BusyShare,
    CacheDtypeName,
    CallsText,
    CataloguePath,
    ClusterPath,
    ConfigPath,
    ContentionName,
    ContextText,
    Contiguous,
    Convex,
    CostsName,
    CpusAnywhere,
    DuplicateBelow,
    Fold,
    Forbids,
    Fuse,
    Inference,
    MicroBatches,
    Model,
    ObjectiveName,
    OptimizerName,
    OverlapName,
    Pins,
    RecomputeName,
    Replicate,
    ScheduleName,
    Speeds,
    SyncBandwidth,
    SyncPeriod,
    Togethers,
    TrainingName,
    TransfersName,
    WeightFormatName,
    Workspace,
)
from placewright.posing.diffusion_flags import DiffusionFlags
from placewright.posing.language_flags import LanguageFlags
from placewright.posing.memory_flags import MemoryFlags
from placewright.posing.objective_flags import ObjectiveFlags

if TYPE_CHECKING:
    from placewright.evaluate import Evaluation
    from placewright.plan import Plan
    from placewright.problem import Problem
    from placewright.report.progress import ProgressLine

__all__ = ["Posing", "takes_problem"]


@dataclass(frozen=True)
class Posing:
    """What a command line says of its problem, and the way to it."""

    model: str
    cluster: Path | None
    flags: ObjectiveFlags
    pin: list[str]
    forbid: list[str]
    costs: str
    fuse: str | None
    speed: list[str]
    inference: bool
    transfers: str | None = None
    duplicate_below: str | None = None
    fold: str | None = None
    memory: MemoryFlags = field(default_factory=MemoryFlags)
    language: LanguageFlags = field(default_factory=LanguageFlags)
    diffusion: DiffusionFlags = field(default_factory=DiffusionFlags)
    together: list[str] = field(default_factory=list)

    def problem(self, progress: ProgressLine) -> Problem:
        """Make the problem; progress is told what happens."""
        from placewright.io.named_cluster import assumed_of
        from placewright.posing.pose import as_duplicate_below, as_fold, as_transfers, as_wishes, pose
        from placewright.posing.times import as_costs
        from placewright.together import kept_together

        if self.cluster is not None and (assumed := assumed_of(self.cluster)):
            progress.tell(assumed)
        posed = pose(
            self.model,
            self.cluster,
            flags=self.flags,
            wishes=as_wishes(self.pin, self.forbid),
            costs=as_costs(self.costs),
            fuse=self.fuse,
            fold=as_fold(self.fold),
            speeds=self.speed,
            inference=self.inference,
            transfers=as_transfers(self.transfers),
            duplicate_below_s=as_duplicate_below(self.duplicate_below),
            memory=self.memory,
            language=self.language,
            diffusion=self.diffusion,
            on_progress=progress.tell,
            on_step=progress.step,
        )
        return kept_together(posed, self.together)

    def answers(self, plan: Plan, evaluation: Evaluation) -> list[str]:
        """Say what people ask of a language model's plan, or a diffusion pipeline's; nothing of another network's."""
        from placewright.diffusion import explain_pictures, is_pipeline
        from placewright.language import explain_steps, is_language_model
        from placewright.posing.diffusion import pose_diffusion
        from placewright.posing.language import pose_language

        given = (self.memory, self.language)
        if is_pipeline(self.model):
            pictures = pose_diffusion(self.model, self.cluster, self.flags, (), self.costs, *given, self.diffusion)
            return explain_pictures(pictures, plan)
        if not is_language_model(self.model):
            return []
        posed = pose_language(self.model, self.cluster, self.flags, (), self.costs, *given)
        return explain_steps(posed, plan, evaluation)


def _posing(
    model: Model,
    cluster: ClusterPath = None,
    objective: ObjectiveName = None,
    contention: ContentionName = None,
    calls: CallsText = None,
    contiguous: Contiguous = None,
    convex: Convex = None,
    cpus_anywhere: CpusAnywhere = None,
    training_objective: TrainingName = None,
    overlap: OverlapName = None,
    replicate: Replicate = None,
    sync_period: SyncPeriod = None,
    sync_bandwidth: SyncBandwidth = None,
    busy_share: BusyShare = None,
    pin: Pins = None,
    forbid: Forbids = None,
    together: Togethers = None,
    costs: CostsName = "auto",
    fuse: Fuse = None,
    speed: Speeds = None,
    inference: Inference = False,
    transfers: TransfersName = None,
    duplicate_below: DuplicateBelow = None,
    fold: Fold = None,
    catalogue: CataloguePath = None,
    context: ContextText = None,
    batch: Batch = None,
    prompt: PromptText = None,
    generate: GenerateText = None,
    dtype: DtypeName = None,
    weight_format: WeightFormatName = None,
    cache_dtype: CacheDtypeName = None,
    grain: GrainName = None,
    in_flight: InFlight = None,
    tied: TiedName = None,
    config: ConfigPath = None,
    workspace: Workspace = None,
    optimizer: OptimizerName = None,
    micro_batches: MicroBatches = None,
    schedule: ScheduleName = None,
    recompute: RecomputeName = None,
    steps: StepCount = None,
    size: SizeText = None,
    guidance: Guidance = None,
) -> Posing:
    flags = ObjectiveFlags(
        objective,
        contention,
        calls,
        contiguous,
        convex or None,
        cpus_anywhere,
        training_objective,
        overlap,
        replicate,
        sync_period,
        sync_bandwidth,
        busy_share,
    )
    return Posing(
        model,
        cluster,
        flags,
        pin or [],
        forbid or [],
        costs,
        fuse,
        speed or [],
        inference,
        transfers,
        duplicate_below,
        fold,
        MemoryFlags(
            weight_format,
            context,
            config,
            batch,
            cache_dtype,
            workspace or None,
            optimizer,
            micro_batches,
            schedule,
            recompute,
        ),
        LanguageFlags(prompt, generate, dtype, grain, in_flight, tied),
        DiffusionFlags(steps, size, guidance),
        together or [],
    )


def takes_problem(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that describe a problem, in place of its first parameter, a :class:`Posing`."""
    shared = inspect.signature(_posing, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def run(**given: Any) -> int:
        return command(_posing(**{name: given.pop(name) for name in shared}), **given)

    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*shared.values(), *own)]
    signature = inspect.Signature(named, return_annotation=int)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {"return": int}
    return run

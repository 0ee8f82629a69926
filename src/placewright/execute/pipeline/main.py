"""What each process does when many samples pass a plan: lay out, run, train, compare with the unsplit network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.evaluate import evaluate, judge
from placewright.execute.network import find_model
from placewright.execute.pipeline.options import Many
from placewright.execute.pipeline.outcome import ManySamples, Share, Trained, steady_s
from placewright.execute.ranks.join import joined
from placewright.execute.ranks.network import RankNetwork
from placewright.host import running_kernel
from placewright.io import read_plan
from placewright.objective import MaxLoad, Throughput
from placewright.plan import Plan
from placewright.problem import Problem

if TYPE_CHECKING:
    from placewright.capture.torch_program import TorchProgram
    from placewright.execute.pipeline.rank import Passed
    from placewright.execute.pipeline.train_weights import TrainedWeights

__all__ = ["run_many_rank"]

KEPT_BYTES = 256 << 20
"""Outputs that are kept at a time to be compared."""


def _predicted_s(problem: Problem, plan: Plan) -> float:
    """Planned time per sample: the plan's value, or the max-load of a placement that was planned for something else."""
    if isinstance(problem.objective, MaxLoad | Throughput):
        return judge(problem, plan).value_s
    return evaluate(replace(problem, objective=MaxLoad(contiguity="any")), plan.device_of).value_s


def run_many_rank(
    plan_path: Path,
    many: Many,
    *,
    model: str | None = None,
    weights: str | None = None,
    runs: int = 3,
    timeout_s: float = 60.0,
) -> ManySamples | None:
    """Run this process's part of many samples; see :func:`placewright.execute.ranks.main.run_rank`.

    First the outputs of every sample are compared with the unsplit network's, or, when training, the gradients of the
    first step and the weights after as many steps as there are runs; then, or in doing so, runs are timed.

    Returns
    -------
    ManySamples or None
        On rank 0.

    Raises
    ------
    InvalidInput
        If the network can't be run so.
    ExecutionError
        If an operator fails, or another rank is lost.
    """
    file = read_plan(plan_path)
    problem, plan = file.problem, file.plan
    with joined(problem, plan, timeout_s) as rank:
        location = model if model is not None else str(find_model(problem, plan_path.parent))
        network = RankNetwork(problem, plan, location, weights)
        return _Ranks(problem, plan, network, many, rank, runs).outcome()


class _Ranks:
    """One rank's view of the whole run."""

    def __init__(self, problem: Problem, plan: Plan, network: RankNetwork, many: Many, rank: int, runs: int) -> None:
        import torch

        from placewright.execute.pipeline.samples import all_inputs, loss_of
        from placewright.execute.pipeline.setup import learning_of, pipeline_of, rank_of_pipeline
        from placewright.execute.pipeline.transport import Gloo

        self._problem, self._plan, self._network, self._many = problem, plan, network, many
        self._rank, self._runs = rank, runs
        self._used = plan.devices_used
        self._rank_of = {i: k for k, i in enumerate(self._used)}
        self._pipeline = pipeline_of(
            network.unread, problem, plan, many.samples, schedule=many.schedule, in_flight=many.in_flight
        )
        self._learns = None
        if many.optimiser is not None:
            module = network.model
            frozen = (
                [n for n, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad]
                if isinstance(module, torch.nn.Module)
                else []
            )
            self._learns = learning_of(network.unread, self._pipeline.routes, frozen)
        self._loss = loss_of(network.unread, self._learns.tracked, many.loss) if self._learns is not None else None
        self._transport = Gloo(self._learns.together(self._rank_of) if self._learns is not None else ())
        self._inputs = all_inputs(network.inputs, many.samples)
        chain, self._note = None, ""
        if many.engine == "torch":
            from placewright.execute.pipeline.handed_over import why_no_chain

            tracked = self._learns.tracked if self._learns is not None else ()
            why = why_no_chain(network.unread, self._pipeline.routes, tracked, many.samples, many.schedule)
            chain = many.schedule if why is None else None
            self._note = (
                "" if why is None else f"The plan is no plain chain ({why}): placewright's own executor ran it."
            )
        self._engine = "placewright" if chain is None else "torch"
        self._mine, self._weights = rank_of_pipeline(
            network.parts,
            problem,
            self._pipeline,
            self._used[rank],
            self._rank_of,
            self._transport,
            self._inputs,
            learns=self._learns,
            loss=self._loss,
            chain=chain,
        )
        self._actions = self._pipeline.actions(self._used[rank])

    def outcome(self) -> ManySamples | None:
        """Compare and measure; rank 0 has the outcome."""
        import torch.distributed as dist

        error, training = float("nan"), self._weights is not None
        if self._weights is None:
            error = self._compare()
            passed = [self._run() for _ in range(self._runs)]
        else:
            passed, first, last = self._train(self._weights)
        rows = self._gathered((running_kernel(), passed))
        weights = self._gathered((first, last)) if training and self._network.whole else None
        dist.barrier()  # nobody closes a connection that another one still reads from
        if rows is None:
            return None
        one_host = len({kernel for kernel, _ in rows}) == 1
        runs = [[row[k] for _, row in rows] for k in range(self._runs)]
        steady = tuple(_steady(run, 0 if training else self._pipeline.in_flight, one_host) for run in runs)
        walls = tuple(max(max(p.ended_s.values(), default=p.began_s) - p.began_s for p in run) for run in runs)
        middle = sorted(range(self._runs), key=steady.__getitem__)[(self._runs - 1) // 2]
        names = [self._problem.cluster.devices[i].name for i in self._used]
        shares = tuple(
            Share(name, len(p.ended_s), p.busy_s / self._many.samples, p.most_kept)
            for name, p in zip(names, runs[middle], strict=True)
        )
        predicted = _predicted_s(self._problem, self._plan)
        return ManySamples(
            self._many.samples,
            max(share.most_kept for share in shares) if self._engine == "torch" else self._pipeline.in_flight,
            self._many.schedule,
            self._engine,
            predicted,
            steady,
            walls,
            error,
            shares,
            self._trained(runs, weights) if training else None,
            self._note,
        )

    def _run(self) -> Passed:
        import torch.distributed as dist

        dist.barrier()
        passed = self._mine.run(self._actions, self._pipeline.dealt)
        dist.barrier()
        return passed

    def _train(self, weights: TrainedWeights) -> tuple[list[Passed], dict[str, Any], dict[str, Any]]:
        """Take as many steps as there are runs; also gives the first gradients and the last weights of this rank."""
        from placewright.execute.pipeline.reference import optimiser_of
        from placewright.execute.pipeline.setup import add_up_gradients

        assert self._learns is not None
        optimiser = optimiser_of(list(weights.parameters.values()), self._many)
        mine = [t for t, devices in self._learns.holders.items() if devices[0] == self._used[self._rank]]
        passed: list[Passed] = []
        first: dict[str, Any] = {}
        for step in range(self._runs):
            for leaf in weights.parameters.values():
                leaf.grad = None
            passed.append(self._run())
            add_up_gradients(weights, self._learns, self._rank_of, self._transport)
            if not step and self._network.whole:
                first = {t: None if (g := weights.parameters[t].grad) is None else g.clone() for t in mine}
            if optimiser is not None:
                optimiser.step()
        return passed, first, {t: weights.parameters[t].detach() for t in mine}

    def _trained(self, runs: Sequence[Sequence[Passed]], weights: Sequence[Any] | None) -> Trained:
        """Take the same steps with the unsplit network, on this rank alone, and compare."""
        from placewright.execute.pipeline.reference import train_unsplit

        assert self._learns is not None and self._loss is not None and self._many.optimiser is not None
        losses = tuple(sum(sum(p.losses.values()) for p in run) / self._many.samples for run in runs)
        if weights is None:
            return Trained(self._many.optimiser, losses, float("nan"), float("nan"))
        gradients = {t: g for first, _ in weights for t, g in first.items()}
        last = {t: w for _, row in weights for t, w in row.items()}
        errors = train_unsplit(self._network, self._inputs, self._loss, self._many, self._runs, gradients, last)
        return Trained(self._many.optimiser, losses, *errors)

    def _gathered(self, mine: Any) -> list[Any] | None:
        import torch.distributed as dist

        rows: list[Any] = [None] * len(self._used)
        dist.gather_object(mine, rows if self._rank == 0 else None)
        return rows if self._rank == 0 else None

    def _compare(self) -> float:
        """Run all samples, in parts whose outputs fit in memory, and compare them on rank 0, one after the other."""
        from placewright.execute.pipeline.reference import unsplit_sample
        from placewright.execute.torch.local import relative_error

        if not self._network.whole:
            self._run()
            return float("nan")
        size, largest = _output_bytes(self._network.unread), 0.0
        count = self._many.samples if self._engine == "torch" else max(1, KEPT_BYTES // max(1, size))
        for first in range(0, self._many.samples, count):
            part = self._pipeline.part(first, count)
            passed = self._mine.run(part.actions(self._used[self._rank]), part.dealt, keep=True, first=first)
            for m in range(len(part.dealt)):
                rows = self._gathered(passed.outputs.pop(m, {}))
                if rows is None:
                    continue
                made = {k: value for row in rows for k, value in row.items()}
                reference = unsplit_sample(self._network, self._inputs[first + m])
                keys = sorted(made)
                largest = max(largest, relative_error([made[k] for k in keys], [reference[k] for k in keys]))
        return largest


def _output_bytes(program: TorchProgram) -> int:
    values = (value.meta.get("val") for value in program.outputs if hasattr(value, "meta"))
    return sum(v.numel() * v.element_size() for v in values if hasattr(v, "element_size"))


def _steady(run: Sequence[Passed], filling: int, one_host: bool) -> float:
    """Seconds per sample of one run; on several hosts, whose clocks differ, those of the slowest rank's own clock."""
    if one_host:
        ended: dict[int, float] = {}
        for passed in run:
            for sample, at in passed.ended_s.items():
                ended[sample] = max(ended.get(sample, at), at)
        return steady_s(min(p.began_s for p in run), list(ended.values()), filling)
    total = max(max(p.ended_s, default=0) for p in run) + 1
    rates = []
    for passed in (p for p in run if p.ended_s):
        # A rank that takes a part of the samples counts those between its own.
        part = len(passed.ended_s) / total
        rates.append(steady_s(passed.began_s, list(passed.ended_s.values()), round(filling * part)) * part)
    return max(rates)

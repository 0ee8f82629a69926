"""A rank that stays up: it loads its part of a plan once, then does what it is told until its input ends.

It is started by :mod:`placewright.execute.serve.group` and reads messages from its standard input: the job, then
commands. It answers on its standard output. The end of its input ends it; so does the death of who started it, and
another rank's, whatever it is waiting for (:mod:`placewright.execute.ranks.join`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec

from placewright.errors import PlacewrightError
from placewright.execute.onnx.worker import read_message, write_message
from placewright.execute.ranks.doing import DOING
from placewright.execute.ranks.join import joined
from placewright.execute.serve.messages import (
    BF16,
    Command,
    Decoder,
    Ready,
    Reply,
    ResidentJob,
    Tensor,
    TensorSpec,
    array_of,
    tensor_of,
)
from placewright.io import PlanFile, read_plan

if TYPE_CHECKING:
    import torch

    from placewright.execute.generate.decoder_rank import DecoderRank
    from placewright.execute.ranks.run import RankRun

__all__ = ["main"]


class Work(Protocol):
    """What a rank does."""

    ready: Ready

    def do(self, command: Command) -> Reply:
        """Do one command together with the other ranks."""


def main() -> None:
    """Entry of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this process, who ends it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    commands = sys.stdin.buffer
    try:
        job = msgspec.msgpack.decode(read_message(commands), type=ResidentJob)
        file = read_plan(job.plan)
        with joined(file.problem, file.plan, job.timeout_s) as rank:
            work = _decoder(job, file, rank) if job.generate else _network(job, file, rank)
            write_message(answers, work.ready)
            _serve(work, commands, answers)
    except PlacewrightError as error:
        refused = error.exit_code == PlacewrightError.exit_code
        write_message(answers, Ready(error=" ".join(str(error).split()), refused=refused))
        sys.exit(1)
    except Exception as error:
        write_message(answers, Ready(error=" ".join(str(error).split()) or type(error).__name__))
        sys.exit(1)


def _serve(work: Work, commands: BinaryIO, answers: BinaryIO) -> None:
    DOING.now("rests")
    while message := read_message(commands):
        command = msgspec.msgpack.decode(message, type=Command)
        write_message(answers, work.do(command))
        DOING.now("rests")


class _Network:
    """Samples, one after the other, operator by operator."""

    def __init__(self, run: RankRun, specs: tuple[TensorSpec, ...], constants: dict[str, Any]) -> None:
        self.ready = Ready(inputs=specs)
        self._run, self._specs, self._constants = run, {s.name: s for s in specs}, constants

    def do(self, command: Command) -> Reply:
        import torch

        given = {t.name: _torch_of(t, self._specs[t.name]) for t in command.tensors}
        self._run.inputs = {**self._constants, **given}
        with torch.no_grad():
            outputs = self._run.run().outputs
        made = tuple(_packed(f"output{k}", value) for k, value in outputs.items() if isinstance(value, torch.Tensor))
        return Reply(command.number, tensors=made)


class _Decoder:
    """Steps of generations side by side, layer by layer."""

    def __init__(self, rank: DecoderRank, decoder: Decoder, modules: tuple[str, ...]) -> None:
        self.ready = Ready(decoder=decoder, modules=modules)
        self._rank = rank

    def do(self, command: Command) -> Reply:
        import torch

        if command.kind == "forget":
            self._rank.forget(command.stream)
            return Reply(command.number)
        chosen = self._rank.step(command.stream, torch.tensor(command.tokens), command.pads)
        return Reply(command.number, tokens=None if chosen is None else tuple(chosen.tolist()))


def _network(job: ResidentJob, file: PlanFile, rank: int) -> _Network:
    import torch

    from placewright.execute.network import find_model
    from placewright.execute.ranks.network import RankNetwork

    location = job.model if job.model is not None else str(find_model(file.problem, Path(job.plan).parent))
    network = RankNetwork(file.problem, file.plan, location, job.weights)
    with torch.no_grad():
        run = network.rank(file.plan.devices_used, rank)
    specs = tuple(
        TensorSpec(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in network.inputs.items()
        if isinstance(value, torch.Tensor)
    )
    return _Network(run, specs, network.inputs)


def _decoder(job: ResidentJob, file: PlanFile, rank: int) -> _Decoder:
    from placewright.execute.generate.part import decoder_part

    part = decoder_part(file.problem, file.plan, job.model or "", job.weights, rank)
    return _Decoder(part.rank, part.decoder, part.modules)


def _torch_of(tensor: Tensor, spec: TensorSpec) -> torch.Tensor:
    import torch

    made = torch.from_numpy(array_of(tensor).copy())
    return made.to(torch.bfloat16) if spec.dtype == BF16 else made


def _packed(name: str, value: torch.Tensor) -> Tensor:
    import torch

    is_bf16 = value.dtype == torch.bfloat16
    array = (value.float() if is_bf16 else value).detach().cpu().contiguous().numpy()
    return tensor_of(name, array, BF16 if is_bf16 else "")


if __name__ == "__main__":
    main()

"""What a user may ask of many samples through a plan."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

from placewright.errors import InvalidInput
from placewright.execute.pipeline.orders import Schedule

__all__ = ["ENGINES", "MOST_SAMPLES", "OPTIMISERS", "Many", "add_many", "asked_many", "check_many", "many_of"]

ENGINES = ("placewright", "torch")
OPTIMISERS = ("sgd", "adam")

MOST_SAMPLES = 100_000
"""Micro-batches that a run may have."""

LEARNING_RATE = 0.01


@dataclass(frozen=True, slots=True)
class Many:
    """How many samples pass, and what for.

    Attributes
    ----------
    samples : int
        Micro-batches; each has the shapes that the network was captured with.
    in_flight : int, optional
        Most of them open at a time; by default what :func:`placewright.execute.pipeline.setup.pipeline_of` says.
    schedule : {"forward", "gpipe", "1f1b"}
    engine : {"placewright", "torch"}
        ``torch``: ``torch.distributed.pipelining`` where the plan is a plain chain.
    optimiser : {"sgd", "adam"}, optional
        To train with; the samples of a run are one batch.
    learning_rate : float
    loss : str, optional
        See :func:`placewright.execute.pipeline.samples.loss_of`.
    """

    samples: int
    in_flight: int | None = None
    schedule: Schedule = "forward"
    engine: str = "placewright"
    optimiser: str | None = None
    learning_rate: float = LEARNING_RATE
    loss: str | None = None

    def arguments(self) -> list[str]:
        """Write them as ``python -m placewright.execute`` reads them."""
        given = [
            ("--micro-batches", self.samples),
            ("--in-flight", self.in_flight),
            ("--schedule", None if self.schedule == "forward" else self.schedule),
            ("--engine", self.engine),
            ("--train", self.optimiser),
            ("--learning-rate", f"{self.learning_rate!r}" if self.optimiser is not None else None),
            ("--loss", self.loss),
        ]
        return [str(word) for name, value in given if value is not None for word in (name, value)]


def check_many(
    samples: int,
    *,
    in_flight: int | None = None,
    schedule: str | None = None,
    engine: str = "placewright",
    optimiser: str | None = None,
    learning_rate: float | None = None,
    loss: str | None = None,
) -> Many:
    """Make :class:`Many` of what a user wrote.

    Raises
    ------
    InvalidInput
        If a number is out of range, a word unknown, or an option is for training and nothing trains.
    """
    if not 1 <= samples <= MOST_SAMPLES:
        raise InvalidInput(f"--micro-batches {samples} is not from 1 to {MOST_SAMPLES}")
    if in_flight is not None and in_flight < 1:
        raise InvalidInput(f"--in-flight {in_flight} is not at least 1")
    if optimiser is not None and optimiser not in OPTIMISERS:
        raise InvalidInput(f"--train {optimiser!r} is unknown; use one of {', '.join(OPTIMISERS)}")
    if engine not in ENGINES:
        raise InvalidInput(f"--engine {engine!r} is unknown; use one of {', '.join(ENGINES)}")
    if schedule not in (None, "gpipe", "1f1b"):
        raise InvalidInput(f"--schedule {schedule!r} is unknown; use one of gpipe, 1f1b")
    if learning_rate is not None and not 0 < learning_rate < float("inf"):
        raise InvalidInput(f"--learning-rate {learning_rate} is not above 0 and finite")
    of_training = {"--schedule": schedule, "--loss": loss, "--learning-rate": learning_rate}
    word = next((name for name, value in of_training.items() if value is not None), None)
    if optimiser is None and word is not None:
        raise InvalidInput(f"{word} is for training; add --train sgd or --train adam, or leave it out")
    if loss is not None and not loss.startswith("py:"):
        raise InvalidInput(f"--loss {loss!r} names no function; write py:package.module:function")
    if schedule == "gpipe" and in_flight is not None:
        raise InvalidInput("GPipe keeps all micro-batches in flight; leave --in-flight out, or take --schedule 1f1b")
    chosen: Schedule = "forward"
    if optimiser is not None:
        chosen = "gpipe" if schedule == "gpipe" else "1f1b"
    rate = LEARNING_RATE if learning_rate is None else learning_rate
    return Many(samples, in_flight, chosen, engine, optimiser, rate, loss)


def add_many(parser: ArgumentParser) -> None:
    """Add the options of many samples to the command of one rank."""
    parser.add_argument("--micro-batches", type=int, help="run so many samples as a pipeline")
    parser.add_argument("--in-flight", type=int, help="most of them that are open at a time")
    parser.add_argument("--train", help=f"take a step of an optimiser in each run: {', '.join(OPTIMISERS)}")
    parser.add_argument("--schedule", help="of training: 1f1b (default), gpipe")
    parser.add_argument("--learning-rate", type=float, help=f"of the optimiser; {LEARNING_RATE:g} where not given")
    parser.add_argument("--loss", help="py:package.module:function, where the network does not return its loss")
    parser.add_argument("--engine", default="placewright", help=f"one of {', '.join(ENGINES)}")


def many_of(options: Namespace) -> Many | None:
    """Read what :func:`add_many` added; ``None`` for one sample.

    Raises
    ------
    InvalidInput
        As :func:`check_many`; or if an option is for many samples and their number is not given.
    """
    return asked_many(
        options.micro_batches,
        in_flight=options.in_flight,
        schedule=options.schedule,
        engine=options.engine,
        optimiser=options.train,
        learning_rate=options.learning_rate,
        loss=options.loss,
    )


def asked_many(
    samples: int | None,
    *,
    in_flight: int | None,
    schedule: str | None,
    engine: str,
    optimiser: str | None,
    learning_rate: float | None,
    loss: str | None,
) -> Many | None:
    """Like :func:`check_many`; ``None`` where no number of samples is given and nothing else asks for many.

    Raises
    ------
    InvalidInput
        If something is asked of many samples and their number is not given.
    """
    if samples is None:
        given: dict[str, int | float | str | None] = {"--in-flight": in_flight, "--schedule": schedule}
        given |= {"--train": optimiser, "--loss": loss, "--learning-rate": learning_rate}
        given["--engine"] = None if engine == ENGINES[0] else engine
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(f"{name} is for many samples; add --micro-batches N, or leave it out")
        return None
    return check_many(
        samples,
        in_flight=in_flight,
        schedule=schedule,
        engine=engine,
        optimiser=optimiser,
        learning_rate=learning_rate,
        loss=loss,
    )

"""What a command line says of the memory of a captured network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

__all__ = ["MemoryFlags"]


@dataclass(frozen=True, slots=True)
class MemoryFlags:
    """Flags of the command line that are about memory; ``None`` where one was not given.

    Attributes
    ----------
    weight_format : str or None
        Name of a format of weights, or bits per weight.
    context : str or None
        Tokens of each sequence that the KV caches hold: ``32k``.
    config : Path or None
        Hugging Face configuration that says what each layer keeps of a token, or the folder that it is in.
    batch : int or None
        Sequences that have caches.
    cache_dtype : str or None
        Of the numbers in a cache; any format of weights will do.
    workspace : bool or None
        Count what comes and goes while an operator runs, or a sample.
    optimizer : str or None
        Count what training with it keeps.
    micro_batches : int or None
        Of a training step.
    schedule : str or None
        ``gpipe`` or ``1f1b``.
    recompute : str or None
        ``none`` or ``full``.
    """

    weight_format: str | None = None
    context: str | None = None
    config: Path | None = None
    batch: int | None = None
    cache_dtype: str | None = None
    workspace: bool | None = None
    optimizer: str | None = None
    micro_batches: int | None = None
    schedule: str | None = None
    recompute: str | None = None

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return ["--" + f.name.replace("_", "-") for f in fields(self) if getattr(self, f.name) is not None]

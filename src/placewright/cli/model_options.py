"""Options about models that are read by their configurations: language models and diffusion pipelines."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "DtypeName",
    "GenerateText",
    "GrainName",
    "Guidance",
    "InFlight",
    "PromptText",
    "SizeText",
    "StepCount",
    "TiedName",
]

PromptText = Annotated[
    str | None,
    typer.Option("--prompt", help="Language model: tokens read first, e.g. 2k; alone: the time to read them."),
]
GenerateText = Annotated[
    str | None, typer.Option("--generate", help="Language model: tokens generated after them, one by one.")
]
DtypeName = Annotated[
    str | None,
    typer.Option("--dtype", help="Of arithmetic and activations of a model by its configuration: bf16, fp16, fp32."),
]
GrainName = Annotated[
    str | None,
    typer.Option(
        "--grain",
        help="What is placed as one of a model by its configuration: layer, module (the default) or operator.",
    ),
]
TiedName = Annotated[
    str | None,
    typer.Option(
        "--tied",
        help="Language model: embedding and head that share weights: together on a device, or apart, with a copy each; "
        "by default apart under max-load and throughput.",
    ),
]
InFlight = Annotated[
    int | None,
    typer.Option(
        "--in-flight",
        help="Language model: batches in a pipeline at a time, each with its cache; by default under max-load and "
        "throughput one a device, else one.",
        min=1,
    ),
]
StepCount = Annotated[
    int | None, typer.Option("--steps", help="Diffusion pipeline: of the denoiser; by default its pipeline's.", min=1)
]
SizeText = Annotated[
    str | None,
    typer.Option(
        "--size", help="Diffusion pipeline: pixels of a picture, WIDTHxHEIGHT; by default what it is made for."
    ),
]
Guidance = Annotated[
    bool | None,
    typer.Option(
        "--guidance/--no-guidance",
        help="Diffusion pipeline: denoise with the text and without in each step; by default as its pipeline does.",
        show_default=False,
    ),
]

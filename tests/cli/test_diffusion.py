"""Diffusion pipelines on the command line: a picture, what it is told by, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Call
from tests.diffusion.small_pipelines import written

CLUSTER = """
devices:
  - {name: fast, model: rtx-4090, host: box}
  - {name: slow, model: rtx-3060-12gb, host: box, memory: 2 MiB}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "sd3", "sd3")
    Path("box.yaml").write_text(CLUSTER)
    return "hf:sd3", "--cluster", "box.yaml"


def test_a_picture_is_planned_and_told_by_its_sections(placewright: Call, files: tuple[str, ...]) -> None:
    """Encoding, steps, decoding; the problem says what was asked; each device's networks are named."""
    options = ("--size", "64x48", "--steps", "4", "--batch", "2", "--weight-format", "text_encoder_3=q8_0")
    done = placewright("plan", *files, *options, "--budget", "1s", "-o", "plan.json")
    assert done.code == 0, done.err
    assert "sd3, 64x48, 4 guided steps, batch 2" in " ".join(done.out.split())
    assert "text_encoder, text_encoder_2, text_encoder_3, transformer, vae" in done.err
    plan = json.loads(Path("plan.json").read_text())
    assert plan["objective_options"] == {"contention": "link", "per": "picture"}
    assert plan["explanation"][0].startswith("Encoding the text takes ")
    assert " for 2 pictures, " in plan["explanation"][0] or " for 2 pictures, with" in plan["explanation"][0]
    assert plan["placement"]["transformer.transformer_blocks.0.attn.to_q"] in ("fast", "slow")
    told = placewright("explain", "plan.json", "--budget", "0")
    assert told.code == 0 and "'fast' holds " in told.out and "'vae'" in told.out
    assert "each of the" not in told.out and "KV cache fit" not in told.out


def test_many_pictures_are_told_by_the_minute(placewright: Call, files: tuple[str, ...]) -> None:
    """Under max-load the rate of the steady state."""
    done = placewright(
        "plan", *files, "--steps", "2", "--grain", "layer", "--objective", "max-load", "--budget", "1s", "--json"
    )
    assert done.code == 0
    rate = 60 / done.json["value_s"]
    assert done.json["explanation"][0].startswith(f"In steady state {rate:.4g} pictures/min are made in all")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--size", "big"), "--size 'big' is not WIDTHxHEIGHT in pixels; write for example '1024x768'"),
        (("--size", "60x64"), "pictures of 60x64 pixels don't fit 'sd3'; give multiples of 8"),
        (("--prompt", "5"), "--prompt is for other networks, and 'sd3' is a diffusion pipeline; leave it out"),
        (("--context", "5", "--tied", "apart"), "--context and --tied are for other networks"),
        (("--objective", "token-latency"), "--objective token-latency is for language models"),
        (
            ("--weight-format", "unet=q8_0"),
            "'unet=q8_0' is not COMPONENT=FORMAT of 'sd3', whose components are text_enc",
        ),
        (("--weight-format", "vae=q9"), "weight format 'q9' is unknown"),
        (("--dtype", "fp12"), "--dtype 'fp12' is unknown"),
        (("--grain", "block"), "grain 'block' is unknown"),
        (("--fuse", "none"), "--fuse is for networks that are captured"),
        (("--costs", "profile"), "--costs profile measures operators, and 'hf:sd3' has shapes alone"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(
    placewright: Call, files: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    """Usage errors name option, value and remedy, and end with 2."""
    done = placewright("plan", *files, *options)
    assert done.code == 2 and said in done.line


def test_flags_of_pipelines_are_refused_elsewhere(placewright: Call, files: tuple[str, ...]) -> None:
    """A language model has no steps, no pictures and no guidance."""
    Path("lm").mkdir()
    Path("lm/config.json").write_text('{"model_type": "llama"}')
    done = placewright("plan", "hf:lm", *files[1:], "--steps", "3", "--no-guidance")
    assert done.code == 2 and "--steps and --no-guidance are for diffusion pipelines" in done.line

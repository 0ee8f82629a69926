"""A pipeline as a problem: what is done how often, what travels, what is held, and what the judge says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.costs import analytic
from placewright.costs.weight_formats import weight_format
from placewright.diffusion import PictureAsked, explain_pictures, pose_pipeline, read_pipeline
from placewright.evaluate import evaluate, plan_for
from placewright.language import Formats
from placewright.objective import Makespan, MaxLoad
from placewright.solve import solve
from tests.diffusion.small_pipelines import PIPELINES, written


def device(name: str, speed: float, memory_mib: float | None = None) -> Device:
    return Device(
        name,
        flops_per_s={"fp32": speed * 1e12, "fp16": speed * 4e12, "bf16": speed * 4e12},
        memory_bandwidth_bytes_per_s=speed * 1e11,
        memory_bytes=None if memory_mib is None else int(memory_mib * 2**20),
        launch_overhead_s=5e-6,
    )


PAIR = Cluster([device("big", 3), device("small", 1)], [Link(2e-5, 1e10, link_class="same-host")])
ASKED = PictureAsked(64, 48, 5, formats=Formats("fp16"))
"""Latents of 16 x 12."""


def posed(folder, name="sdxl", asked=ASKED, objective=None, cluster=PAIR):
    path = folder if (folder / "model_index.json").exists() else written(folder / "p", name)
    return pose_pipeline(read_pipeline(f"hf:{path}"), cluster, asked, objective or Makespan("none"), analytic)


def value(p, at=0):
    return evaluate(p.problem, [at] * len(p.problem.graph)).value_s


@pytest.mark.parametrize("name", PIPELINES)
def test_a_picture_takes_text_once_each_step_and_decoding_once(name, tmp_path):
    """On one device times add up: encode + steps x step + decode, whatever the grain; loads of a pipeline too.

    Exactly so everything once and the four other steps; the sections by themselves to a thousandth, as the depth of a
    product that nothing reads within its section is not known.
    """
    p = posed(tmp_path, name)
    folder = tmp_path / "p"
    each = [evaluate(problem, [0] * len(problem.graph)).value_s for _, problem in p.told]
    assert [phase.name for phase, _ in p.told] == ["encode", "step", "decode"]
    once, step = (evaluate(problem, [0] * len(problem.graph)).value_s for problem in p.steps)
    assert value(p) == pytest.approx(once + 4 * step, rel=1e-9) and step == pytest.approx(each[1], rel=1e-9)
    assert value(p) == pytest.approx(each[0] + 5 * each[1] + each[2], rel=1e-3)
    for grain in ("layer", "operator"):
        assert value(posed(folder, asked=replace(ASKED, grain=grain))) == pytest.approx(value(p), rel=1e-9)
    assert value(posed(folder, asked=replace(ASKED, steps=1))) == pytest.approx(once, rel=1e-9)
    assert value(posed(folder, objective=MaxLoad())) == pytest.approx(value(p), rel=1e-9)


def test_text_travels_once_and_what_a_step_hands_over_with_every_step(tmp_path):
    """Times of transfers in fp16, of guided pictures, and by hand.

    States: 2 prompts x 77 tokens x (16 + 24) numbers x 2 bytes = 12,320 bytes, once. What the first convolution makes:
    2 samples x 16 x 12 positions x 8 numbers x 2 bytes = 6,144 bytes, in 5 steps. Latents: 16 x 12 x 4 x 2 = 1,536
    bytes, once to the decoder.
    """
    problem = posed(tmp_path).problem
    index = {t.name: u for u, t in enumerate(problem.graph.tensors)}
    for name, size, times in (("unet.cat", 12_320, 1), ("unet.conv_in", 6_144, 5)):
        u = index[f"{name}.out"]
        assert problem.graph.tensors[u].size_bytes == size
        assert problem.times.transfer_s[u, 0, 1] == pytest.approx(times * (2e-5 + size / 1e10))
    latents = problem.graph.tensors[index["unet.conv_out.scheduler.out"]]
    assert latents.size_bytes == 1536
    assert [problem.graph.operators[v].name for v in latents.readers] == ["vae.post_quant_conv"]
    assert problem.times.transfer_s[index[latents.name], 0, 1] == pytest.approx(2e-5 + 1536 / 1e10)


def test_a_picture_of_sdxl_is_decoded_in_fp32_where_the_rest_is_fp16(tmp_path):
    """As force_upcast asks for: four bytes a number in the autoencoder. In bf16 it is not, nor of other pipelines."""
    p = posed(tmp_path)
    half = {v.name: v for v in p.problem.graph.operators}
    brain = posed(tmp_path / "p", asked=replace(ASKED, formats=Formats("bf16")))
    whole = {v.name: v for v in brain.problem.graph.operators}
    name = "vae.decoder.conv_in"
    assert (
        half[name].dtype == "fp32" and half[name].weight_bytes == 4 * (9 * 4 * 16 + 16) == 2 * whole[name].weight_bytes
    )
    assert half["unet.conv_in"].weight_bytes == whole["unet.conv_in"].weight_bytes == 2 * (9 * 4 * 8 + 8)
    last = next(t for t in p.problem.graph.tensors if t.output)
    assert (last.name, last.size_bytes) == ("vae.decoder.conv_out.out", 64 * 48 * 3 * 4)


def test_guidance_doubles_the_denoiser_and_a_batch_everything_that_runs(tmp_path):
    """FLOPs by network; the encoder of the autoencoder is held and does nothing."""

    folder = written(tmp_path / "p", "sd3")

    def flops(asked):
        found = {}
        for v in posed(folder, asked=asked).problem.graph.operators:
            found[v.name.partition(".")[0]] = found.get(v.name.partition(".")[0], 0) + v.flops
        return found

    two = flops(replace(ASKED, grain="operator"))
    one = flops(replace(ASKED, guided=False, grain="operator"))
    four = flops(replace(ASKED, batch=2, grain="operator"))
    assert one["vae"] == two["vae"] and one["text_encoder_3"] * 2 == two["text_encoder_3"]
    scheduler = 5 * (8 * 6) * 16  # one picture's latents in each step, guided or not
    assert 2 * (one["transformer"] - scheduler) == two["transformer"] - scheduler
    assert four == {name: 2 * n for name, n in two.items()}
    idle = [v for v in posed(folder).problem.graph.operators if v.name == "vae.encoder"]
    assert len(idle) == 1 and idle[0].flops == 0 and idle[0].weight_bytes > 0


def test_formats_cover_products_of_text_encoders_and_denoiser(tmp_path):
    """q8_0 for all but the autoencoder; by component, where one is named; convolutions, norms and biases never."""
    folder = written(tmp_path / "p", "flux")
    plain = {v.name: v.weight_bytes for v in _operators(folder, Formats("bf16"))}
    kinds = {v.name: v.kind for v in _operators(folder, Formats("bf16"))}
    every = {v.name: v.weight_bytes for v in _operators(folder, Formats("bf16", weight_format("q8_0")))}
    some = {
        v.name: v.weight_bytes
        for v in _operators(folder, Formats("bf16", components={"transformer": weight_format("8")}))
    }
    q, t5 = (
        "transformer.single_transformer_blocks.0.attn.to_q",
        "text_encoder_2.encoder.block.0.layer.0.SelfAttention.q",
    )
    assert plain[q] == 2 * (32 * 32 + 32) and some[q] == 32 * 32 + 32
    assert every[q] == -(-(32 * 32 + 32) * 17 // 16) and every[t5] == 48 * 32 * 17 // 16
    assert some[t5] == plain[t5] == 2 * 48 * 32
    for name, size in plain.items():
        if name.startswith("vae.") or kinds[name] in ("norm", "conv"):
            assert every[name] == size


def _operators(folder, formats):
    return posed(folder, asked=replace(ASKED, guided=False, formats=formats, grain="operator")).problem.graph.operators


def test_a_split_is_told_by_its_sections(tmp_path):
    """Two devices, of which one alone can't hold the pipeline: sections are told, and no plan is below the bound."""
    p = posed(tmp_path, "sd3", replace(ASKED, grain="layer"))
    need = sum(v.weight_bytes for v in p.problem.graph.operators) / 2**20
    tight = Cluster([device("big", 3, 0.8 * need + 1), device("small", 1, 4 * need)], PAIR.links)
    p = posed(tmp_path / "p", asked=replace(ASKED, grain="layer"), objective=Makespan(), cluster=tight)
    n = len(p.problem.graph)
    half = np.array([int(v.name.startswith("text_encoder_3.")) for v in p.problem.graph.operators], dtype=np.int32)
    split = plan_for(p.problem, half)
    assert split is not None and len(half) == n
    said = explain_pictures(p, split)[0]
    assert said.startswith("Encoding the text takes ") and ", each of 5 steps " in said and ", and decoding " in said
    found = solve(p.problem, budget=2)
    assert found.lower_bound_s <= found.require_plan().value_s <= split.value_s

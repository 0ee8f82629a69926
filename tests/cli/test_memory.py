"""Options that count more memory: what they add, how every report lists it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import placewright as pw
from tests.cli.commands import Call

pytest.importorskip("torch")

DECODER = "py:tests.costs.trained:decoder"
# Two layers of width 16 with two heads of 8, and an embedding of 32 x 16 that the head is tied to.
CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
LAYER = 16 * 48 + 48 + 16 * 16 + 16 + 16 * 32 + 32 + 32 * 16 + 16 + 4 * 16
PARAMETERS = 32 * 16 + 2 * LAYER


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def test_caches_and_formats(placewright: Call, cluster_file: Path, config: Path) -> None:
    """3 sequences of 1,024 tokens keep 2 x 16 numbers a layer of 8 bits; matrices take 4.5 of their 32 bits."""
    made = ("--context", "1k", "--config", config, "--batch", 3, "--cache-dtype", "int8", "--weight-format", "q4_0")
    shown = placewright("convert", DECODER, "-c", cluster_file, "--costs", "analytic", *made, "-o", "p.json")
    assert shown.code == 0 and "KV cache of 3 x 1,024 tokens: 192 KiB" in shown.err
    operators = pw.read_problem("p.json").graph.operators
    assert sorted(v.kv_cache_bytes for v in operators if v.kv_cache_bytes) == [2 * 16 * 3 * 1024] * 2
    # In fp32 stay the normalisations: 2 a layer of 2 x 16 numbers. A bias counts with its matrix.
    matrices, norms = PARAMETERS - 2 * 4 * 16, 2 * 4 * 16
    assert 0 <= sum(v.weight_bytes for v in operators) - (matrices * 4.5 / 8 + norms * 4) < 10


def test_training_is_listed_everywhere(placewright: Call, cluster_file: Path) -> None:
    """AdamW keeps two numbers a parameter; of 8 micro-batches two are in flight on two devices under 1F1B."""
    asked = ("--objective", "max-load", "--optimizer", "adamw", "--micro-batches", 8, "--costs", "analytic")
    shown = placewright(
        "plan", DECODER, "-c", cluster_file, *asked, "--budget", "1s", "-o", "plan.json", "--report", "r.html"
    )
    assert shown.code == 0
    assert "saved for the backward pass of 2 micro-batches in flight" in shown.err
    assert "that come and go while a micro-batch is computed" in shown.err
    assert all(part in shown.out for part in ("gradients", "optimiser", "saved"))
    page = Path("r.html").read_text()
    assert "optimiser" in page and "saved for the backward pass" in page
    judged = placewright("evaluate", "plan.json", "plan.json", "--json").json["devices"]
    assert sum(d["gradient_bytes"] for d in judged) == 4 * PARAMETERS
    assert sum(d["optimizer_bytes"] for d in judged) == 8 * PARAMETERS
    parts = ("weight", "kv_cache", "activation", "gradient", "optimizer", "saved", "workspace")
    assert all(d["memory_bytes"] == sum(d[f"{part}_bytes"] for part in parts) for d in judged)
    assert placewright("verify", "plan.json", "plan.json").code == 0
    assert "optimiser" in placewright("show", "plan.json").out


def test_schedules_and_recomputation(placewright: Call, cluster_file: Path) -> None:
    """GPipe keeps all 8 micro-batches; layers that are computed again keep less, and set more aside."""
    saved = {}
    asked = ("--objective", "max-load", "--optimizer", "sgd", "--micro-batches", 8, "--costs", "analytic")
    for name, more in {"1f1b": (), "gpipe": ("--schedule", "gpipe"), "full": ("--recompute", "full")}.items():
        shown = placewright("convert", DECODER, "-c", cluster_file, *asked, *more, "-o", "p.json")
        problem = pw.read_problem("p.json")
        saved[name] = sum(v.saved_bytes for v in problem.graph.operators), problem.cluster.devices[0].reserve_bytes
        assert shown.code == 0 and not any(v.optimizer_bytes for v in problem.graph.operators)
    assert saved["gpipe"][0] == 4 * saved["1f1b"][0] > saved["full"][0] > 0
    assert saved["gpipe"][1] == saved["1f1b"][1] < saved["full"][1]


def test_workspace(placewright: Call, cluster_file: Path) -> None:
    """Under the makespan it is a tensor that nobody reads; a pipeline sets the peak of a sample aside.

    Four normalisations, two attentions and the loss take something in between; products don't.
    """
    asked = ("-c", cluster_file, "--costs", "analytic", "--workspace", "-o", "p.json")
    assert placewright("convert", DECODER, *asked).code == 0
    tensors = pw.read_problem("p.json").graph.tensors
    assert sum(t.name.endswith(" (workspace)") and not t.readers and t.size_bytes > 0 for t in tensors) == 7
    shown = placewright("convert", DECODER, *asked, "--objective", "max-load")
    assert shown.code == 0 and "that come and go while a sample is computed" in shown.err
    assert pw.read_problem("p.json").cluster.devices[0].reserve_bytes > 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--batch", 2), "--batch is for --context, which is not given; add it, or leave --batch out"),
        (("--micro-batches", 2), "--micro-batches is for --optimizer, which is not given"),
        (("--optimizer", "sofa"), "optimizer 'sofa' is unknown; use one of sgd, momentum"),
        (("--optimizer", "sgd", "--schedule", "zigzag"), "--schedule 'zigzag' is unknown; use one of 1f1b, gpipe"),
        (("--optimizer", "sgd", "--recompute", "some"), "--recompute 'some' is unknown; use one of none, full"),
        (("--optimizer", "sgd", "--fold", "auto"), "--fold auto takes weights for constants, which --optimizer trains"),
        (("--weight-format", "q9"), "weight format 'q9' is unknown; use bits per weight from 1 to 64, or one of fp32"),
        (("--context", "much"), "--context"),
        (("--context", "1k"), "--context needs to know what each layer keeps of a token; give --config"),
        (("--context", "1k", "--config", "none.json"), "none.json"),
    ],
)
def test_what_is_refused(placewright: Call, cluster_file: Path, options: tuple[object, ...], complaint: str) -> None:
    """Exit code 2 and one line that says what to do."""
    shown = placewright("convert", DECODER, "-c", cluster_file, "--costs", "analytic", *options, "-o", "p.json")
    assert shown.code == 2 and complaint in shown.line


def test_a_problem_file_is_as_it_stands(placewright: Call, problem_file: Path) -> None:
    """Nothing can be added to its memory."""
    shown = placewright("plan", problem_file, "--optimizer", "sgd")
    assert shown.code == 2 and "--optimizer is for networks that are captured" in shown.line


PROFILE = """\
node1 -- Input0 -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=8.0, parameter_size=0.0
node2 -- Linear -- forward_compute_time=2.0, backward_compute_time=3.0, activation_size=16.0, parameter_size=40.0
\tnode1 -- node2
"""


def test_a_profile_of_layers_is_trained(placewright: Call, tmp_path: Path) -> None:
    """A layer saves its output of 8 or 16 B for 2 micro-batches in flight; momentum keeps one number a parameter."""
    (tmp_path / "net.txt").write_text(PROFILE)
    (tmp_path / "c.yaml").write_text(
        "devices: [{name: 'g[0-1]'}]\nlinks: [{class: same-host, bandwidth: 1 GB/s, latency: 0}]"
    )
    asked = ("convert", "net.txt", "-c", "c.yaml", "--optimizer", "momentum", "--micro-batches", 4)
    assert placewright(*asked, "-o", "p.json").code == 0
    operators = {v.name: v for v in pw.read_problem("p.json").graph.operators}
    assert [operators[v].saved_bytes for v in ("node1", "node2")] == [16, 32]
    assert (operators["node2"].gradient_bytes, operators["node2"].optimizer_bytes) == (40, 40)
    assert not any(v.resident_bytes for v in operators.values() if v.backward)
    shown = placewright(*asked, "--inference", "-o", "p.json")
    assert shown.code == 2 and "--inference leaves out the backward pass, which --optimizer counts for" in shown.line
    shown = placewright("convert", "net.txt", "-c", "c.yaml", "--weight-format", "int8", "-o", "p.json")
    assert shown.code == 2 and "--weight-format is for networks that are captured" in shown.line

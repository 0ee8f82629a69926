"""Language models on the command line: what is told, what is planned, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Call

CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 4000,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
CLUSTER = """
devices:
  - {name: big, model: rtx-3090, host: box, memory: 12 MiB}
  - {name: small, model: rtx-3060-12gb, host: box}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "box.yaml").write_text(CLUSTER)
    return "hf:tiny", "--cluster", "box.yaml"


def test_a_plan_says_tokens_a_second_and_how_long_a_context_fits(placewright: Call, files):
    """The objective is of a generated token; sentences after the report, and in the file, answer in tokens."""
    written = ("-o", "plan.json", "--report", "plan.html")
    done = placewright("plan", *files, "--context", "2k", "--batch", "4", "--budget", "5s", *written)
    assert done.code == 0
    assert "tiny, a token at 2048, batch 4" in done.out and "a generated token" in done.out
    assert "for each of 4 sequences" in done.out
    assert "tiny: 0.0108 B parameters, 20.6 MiB; the KV cache has room for 4 x 2048 tokens" in done.err
    plan = json.loads(Path("plan.json").read_text())
    assert plan["objective_options"] == {"contention": "link", "per": "token"}
    assert plan["placement"]["model.layers.0.self_attn.q_proj"] == plan["placement"]["model.layers.0.input_layernorm"]
    assert any("The KV cache takes 12 MiB for 4 x 2,048 tokens" in said for said in plan["explanation"])
    page = Path("plan.html").read_text()
    head, asked = page.split('<main id="main">')
    assert "The KV cache takes 12 MiB for 4 x 2,048 tokens" in head
    assert "<h3>Does the KV cache fit, and up to which context?</h3>" in asked
    assert placewright("show", "plan.json", "--report", "shown.html").code == 0
    assert "<h3>Does the KV cache fit, and up to which context?</h3>" in Path("shown.html").read_text()


def test_an_answer_is_told_by_its_steps(placewright: Call, files):
    """Prefill, a token, and their sum, which is the value of the plan."""
    done = placewright("plan", *files, "--prompt", "1k", "--generate", "100", "--budget", "5s", "--json")
    value = done.json["value_s"]
    assert done.code == 0 and done.json["objective_options"]["per"] == "answer"
    assert done.json["explanation"][0].startswith("Reading the prompt takes ")
    assert f"{value * 1e3:.3g} ms together" in done.json["explanation"][0]


def test_a_problem_file_of_a_language_model_is_planned_again(placewright: Call, files):
    """convert keeps objective, cache and the names of modules; layers as one, in a quantised format."""
    options = ("--weight-format", "q8_0", "--grain", "layer", "--objective", "token-latency")
    assert placewright("convert", *files, *options, "-o", "problem.json").code == 0
    problem = json.loads(Path("problem.json").read_text())
    assert problem["objective"] == {"name": "makespan", "contention": "link", "per": "token"}
    assert [v["name"] for v in problem["graph"]["operators"]][1] == "model.layers.0"
    assert problem["graph"]["source"]["format"] == "hf"
    assert placewright("plan", "problem.json", "--budget", "2s").code == 0


def test_a_pipeline_keeps_a_batch_in_flight_for_each_device(placewright: Call, files):
    """Under max-load two devices have two batches under way, each with its cache."""
    done = placewright("plan", *files, "--objective", "max-load", "--context", "1k", "--budget", "5s", "--json")
    assert done.code == 0
    assert sum(d["kv_cache_bytes"] for d in done.json["devices"]) == 2 * 3 * 2 * 2 * 64 * 2 * 1024
    assert done.json["explanation"][0].startswith("In steady state ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--costs", "profile"), "--costs profile measures operators, and 'hf:tiny' has shapes alone"),
        (("--fuse", "none"), "--fuse is for networks that are captured"),
        (("--context", "many"), "--context 'many' is not a number with a unit; write for example '32k'"),
        (("--weight-format", "q9"), "weight format 'q9' is unknown"),
        (("--dtype", "bf15"), "--dtype 'bf15' is unknown; use one of fp32, bf16, fp16, fp8, int8"),
        (("--grain", "head"), "grain 'head' is unknown; use one of layer, module, operator"),
        (("--generate", "5"), "generate 5 has no prompt that it follows"),
        (("--prompt", "5", "--objective", "token-latency"), "--prompt 5 alone is only read; add --generate"),
        (("--optimizer", "adam"), "--optimizer is for networks that are captured"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(placewright: Call, files, options, said):
    """Usage errors name option, value and remedy, and end with 2."""
    done = placewright("plan", *files, *options)
    assert done.code == 2 and said in done.line


@pytest.mark.parametrize("options", [("--prompt", "5"), ("--objective", "token-latency"), ("--grain", "layer")])
def test_other_networks_have_no_tokens(placewright: Call, problem_file, options):
    """A problem file is refused the flags of language models."""
    done = placewright("plan", problem_file, *options)
    assert done.code == 2 and "for language models (hf:DIR)" in done.line


def test_a_model_that_is_not_there_is_told_how_to_get_it(placewright: Call, files):
    """Nothing is fetched: the line says what to run."""
    done = placewright("plan", "hf:meta-llama/Llama-3.1-8B", *files[1:])
    assert done.code == 2 and "'hf download ID config.json --local-dir DIR'" in done.line

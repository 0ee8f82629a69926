"""What people ask of a plan, on the command line: explain, and a cluster that is named in a word."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import Call

CONFIG = Path(__file__).parents[2] / "examples" / "configs" / "llama-3.1-8b.json"


def test_explain_answers_of_a_language_model(placewright: Call, tmp_path: Path) -> None:
    """From the plan file alone: the context that fits, as the command that made it said too; the assumed PC is told."""
    path = tmp_path / "plan.json"
    cluster = ("--cluster", "rtx-3090+rtx-3060-12gb+64GiB")
    made = placewright("plan", f"hf:{CONFIG}", *cluster, "--context", "8k", "--budget", "0", "-o", path)
    assert made.code == 0 and "one PC, 12 GB/s and 15 us between its devices" in made.err
    shown = placewright("explain", path, "--budget", "0", "--json")
    answers = {a["question"]: a["sentences"] for a in json.loads(shown.out)["answers"]}
    fits = answers["Does the KV cache fit, and up to which context?"]
    # 2 x 8 heads of 128 in 16 bits are 4 KiB a token, of 32 layers 128 KiB: 8,192 tokens take 1 GiB.
    assert fits[0] == "It fits: 1 GiB in all, with room for 8,192 tokens of each sequence."
    reach = fits[1].split("memory reaches ")[1].split(" tokens")[0]
    assert f"could have room for {reach} a" in " ".join(made.out.split())
    text = placewright("explain", path, "--budget", "0").out
    assert all(question in text for question in answers) and "Why not split evenly?" in answers

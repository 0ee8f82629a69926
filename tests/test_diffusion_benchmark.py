"""The benchmark of diffusion pipelines: how the others place components, and how rows become a page."""

from __future__ import annotations

import pytest
from benchmarks.quality import diffusion as program

from placewright.cluster import Cluster, Device, Link
from placewright.graph import Operator, OperatorGraph
from placewright.problem import Problem

NAMES = ("text_encoder.a", "text_encoder.b", "unet.a", "unet.b", "vae.a")
WEIGHTS = (10, 10, 30, 30, 5)
SECONDS = ((2, 4, 90), (2, 4, 90), (10, 20, 90), (10, 20, 90), (3, 1, 90))
"""By hand: all on the first device 27, on the second 49; the last component is quicker on the second."""


def problem(rooms: tuple[int, int, int]) -> Problem:
    cluster = Cluster(
        [Device("a", memory_bytes=rooms[0]), Device("b", memory_bytes=rooms[1]), Device("ram", kind="cpu")],
        [Link(0, 1e9, link_class="same-host")],
    )
    operators = [Operator(n, weight_bytes=w) for n, w in zip(NAMES, WEIGHTS, strict=True)]
    return Problem(OperatorGraph(operators), cluster, [[float(s) for s in row] for row in SECONDS])


def test_components_are_placed_as_wholes() -> None:
    """Independent operators: the makespan is the largest sum of a device.

    The denoiser's 20 on the first, beside the text's 8 and the decoder's 1 on the second. Where neither holds the
    denoiser's 60 bytes it goes to the CPU: 180.
    """
    assert program.best_of_components(problem((100, 100, 0))) == pytest.approx(20)
    assert program.best_of_components(problem((50, 50, 0))) == pytest.approx(180)
    assert program.one_device(problem((100, 100, 0))) == pytest.approx(27)
    assert program.one_device(problem((50, 50, 0))) == pytest.approx(450)


def test_diffusers_own_function_is_asked() -> None:
    """The largest component on the largest GPU, then back and forth: denoiser on b (40 s), the rest on a (7)."""
    pytest.importorskip("diffusers")
    assert program.diffusers_balanced(problem((100, 200, 0))) == pytest.approx(40)


def test_equal_bytes_are_cut_in_order() -> None:
    """85 bytes: a gets 10 + 10, and the 30 whose middle is at 35; b the next 30, at 65, and 5: max(14, 21)."""
    assert program.equal(problem((100, 100, 0))) == pytest.approx(21)


def test_a_page_has_every_row() -> None:
    """A plan, what others take, and a cell without a plan."""
    row = {"model": "p", "cluster": "c", "value_s": 2.0, "gap": 0.01, "devices": 2}
    ways = {"diffusers": "", "components": 3.0, "equal": "does not fit", "one device": 4.0}
    none = {**row, "value_s": None, **dict.fromkeys(ways, "does not fit")}
    rows = [{**row, **ways, "objective": "makespan"}, {**row, **ways, "diffusers": 4.0, "objective": "max-load"}]
    rows += [{**none, "objective": "makespan"}, {**row, **ways, "diffusers": 8.0, "objective": "makespan"}]
    text = program.page(rows, 4.0)
    assert "| p | c | 2 s | 2 | 1.0 % |  | 3 (+50 %) | does not fit | 4 (+100 %) |" in text
    assert "| p | c | does not fit | | | | | | |" in text
    assert "| diffusers | 1 | 75.0 % | 75.0 % | 75.0 % | 0 |" in text and "| equal | 0 |" not in text

"""Greedy generation over any step, and what prompts may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from placewright.errors import InvalidInput
from placewright.execute.generate.generation import Generation, check_prompts, greedy
from placewright.execute.generate.run import _difference
from placewright.execute.generate.text import parse_token_ids, prompts_of, tokenizer_of
from placewright.execute.serve.messages import Decoder

DECODER = Decoder(vocabulary=50, ends=(9,), longest=8)


def test_rows_end_at_their_own_time_and_all_at_the_last() -> None:
    """Each step counts on: row 0 ends at 9, row 1 has its five tokens; what row 0 reads then is not kept."""
    asked: list[tuple[list[list[int]], tuple[int, ...]]] = []

    def step(rows: Sequence[Sequence[int]], pads: Sequence[int]) -> list[int]:
        asked.append(([list(row) for row in rows], tuple(pads)))
        return [row[-1] + 1 for row in rows]

    told: list[list[int | None]] = []
    made = greedy(step, [[6, 7], [20]], 5, [9], told.append)
    assert made.tokens == ((8, 9), (21, 22, 23, 24, 25))
    assert asked[0] == ([[6, 7], [0, 20]], (0, 1))
    assert asked[1:] == [([[8 + k], [21 + k]], ()) for k in range(4)]
    assert told == [[8, 21], [9, 22], [None, 23], [None, 24], [None, 25]]
    assert len(made.steps_s) == 4


def test_it_stops_when_all_rows_have_ended() -> None:
    """Both rows reach 9 in the second step, and no third is taken."""
    made = greedy(lambda rows, pads: [row[-1] + 1 for row in rows], [[7], [7]], 100, [9])
    assert made.tokens == ((8, 9), (8, 9)) and len(made.steps_s) == 1


def test_the_time_of_a_token_is_the_median_of_all_but_the_first() -> None:
    """Of 3, 1 and 2 s it is 2 s; of none there is none."""
    assert Generation(((1, 2, 3, 4),), 10.0, (3.0, 1.0, 2.0)).per_token_s == 2.0
    assert math.isnan(Generation(((1,),), 10.0, ()).per_token_s)


@pytest.mark.parametrize(
    ("prompts", "tokens", "said"),
    [
        ([], 1, "0 prompts were given; give 1 to 256"),
        ([[1]] * 257, 1, "257 prompts"),
        ([[1]], 0, "0 tokens can't be generated"),
        ([[1], []], 1, "prompt 1 has no token"),
        ([[1, 2, 3]], 6, "prompt 0 has 3 tokens, which with 6 more is above the 8"),
        ([[1, 50]], 1, "prompt 0 has the token 50; tokens are 0 to 49"),
        ([[-1]], 1, "has the token -1"),
    ],
)
def test_prompts_that_can_not_be_continued_are_refused(prompts: list[list[int]], tokens: int, said: str) -> None:
    """Each with the limit that it breaks."""
    with pytest.raises(InvalidInput, match=said):
        check_prompts(prompts, tokens, DECODER)
    check_prompts([[1, 2, 3]], 5, DECODER)


def test_prompts_are_read_from_numbers_and_from_text(tmp_path: Path) -> None:
    """Text by a tokenizer of a folder: words of a table; without one it is refused, and so are words as numbers."""
    assert prompts_of([], ["1,2 3", "4"], None) == [[1, 2, 3], [4]]
    with pytest.raises(InvalidInput, match=r"--prompt-ids: '-3' is no token"):
        parse_token_ids("1,-3", "--prompt-ids")
    with pytest.raises(InvalidInput, match="there is no prompt"):
        prompts_of([], [], None)
    with pytest.raises(InvalidInput, match="needs a tokenizer"):
        prompts_of(["hello"], [], None)
    with pytest.raises(InvalidInput, match=r"holds no tokenizer\.json"):
        tokenizer_of(tmp_path, None)
    assert tokenizer_of(None, f"hf:{tmp_path}") is None
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    found = tokenizer_of(None, f"hf:{tmp_path}")
    assert found is not None
    assert prompts_of(["b a c"], ["7"], found) == [[1, 0, 2], [7]]
    assert found.text([1, 0]) == "b a"
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInput, match="can't be read as a tokenizer"):
        tokenizer_of(tmp_path, None)


def test_the_first_token_that_differs_is_named() -> None:
    """Also where one text is shorter."""
    assert _difference([[1, 2]], [[1, 3]]).startswith("token 1 of prompt 0 is 2, and the unsplit decoder's is 3")
    assert _difference([[5], [1]], [[5], [1, 3]]).startswith("token 1 of prompt 1 is absent")

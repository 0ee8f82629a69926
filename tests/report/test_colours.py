"""The colours of devices can be told apart by people who see fewer colours."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pytest

# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
SEEN = {
    "all colours": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Ottosson (2020): linear RGB to Oklab, where a distance of 0.02 is about the least that is seen side by side.
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def colours(theme):
    css = files("placewright.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--c\d: light-dark\(#(\w{6}), #(\w{6})\)", css)
    assert len(pairs) == 8
    bytes_ = np.array([list(bytes.fromhex(pair[theme])) for pair in pairs]) / 255
    return np.where(bytes_ <= 0.04045, bytes_ / 12.92, ((bytes_ + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("eyes", SEEN)
def test_any_two_of_the_eight_colours_differ(theme, eyes):
    """By 0.055, nearly three times what is just seen; the first four by 0.13 to those who lack red or green."""
    seen = np.clip(colours(theme) @ np.array(SEEN[eyes]).T, 0, 1)
    lab = np.cbrt(seen @ np.array(CONES).T) @ np.array(OKLAB).T
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=2)[np.triu_indices(8, 1)]
    assert apart.min() > 0.055
    first = np.linalg.norm(lab[:4, None] - lab[None, :4], axis=2)[np.triu_indices(4, 1)]
    assert first.min() > (0.055 if eyes == "no blue" else 0.13)

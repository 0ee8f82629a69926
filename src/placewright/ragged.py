"""Rows of unequal lengths as two arrays, which is how kernels take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["ragged"]


def ragged(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Put rows one after the other: row k is ``values[pointer[k]:pointer[k + 1]]``.

    Examples
    --------
    >>> pointer, values = ragged([[7, 8], [], [9]])
    >>> pointer.tolist(), values.tolist()
    ([0, 2, 2, 3], [7, 8, 9])
    """
    pointer = np.zeros(len(rows) + 1, dtype=np.int32)
    pointer[1:] = np.cumsum([len(row) for row in rows])
    return pointer, np.array([x for row in rows for x in row], dtype=np.int32)

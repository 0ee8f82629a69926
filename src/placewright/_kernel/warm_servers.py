"""Compile the kernels of many servers: two blocks, one after the other, on one class of devices."""

from __future__ import annotations

from functools import cache

import numpy as np

from placewright._kernel.pipelines import best_cuts, divided_time, priced_cuts
from placewright._kernel.stages import Messages, StageTable, cheapest_chain, count_stages, crossing, fill_stages

__all__ = ["warm_up_servers"]


@cache
def warm_up_servers() -> None:
    """Call each kernel once."""
    inside, sums = np.array([[0, 0], [1, 0], [1, 1]], dtype=np.uint8), np.arange(3.0)
    column, none, ones = sums.reshape(3, 1).copy(), np.zeros((3, 1), dtype=np.int32), np.ones((1, 1))
    first, ptr = np.zeros(1, dtype=np.int32), np.array([0, 1], dtype=np.int32)
    count = count_stages(inside, sums, 9.0, 0, 3)
    table = StageTable(np.zeros(4, dtype=np.int64), np.zeros(count, dtype=np.int32), np.zeros((count, 1)))
    messages = Messages(first, ptr, first + 1, ones, ones.copy())
    cross = crossing(inside, messages)
    fill_stages(inside, sums, np.full(1, 9.0), column, none, messages, cross, 0, 3, table)
    cheapest_chain(table, np.ones(1), np.zeros(3), np.zeros(3), 9.0, np.zeros(3))
    row, cuts = sums.reshape(1, 3).copy(), np.zeros(2, dtype=np.int32)
    banned, low = np.zeros((1, 3), dtype=np.int32), np.zeros(1, dtype=np.int32)
    best_cuts(row, row.copy(), row.copy(), banned, sums, np.full(1, 9.0), np.zeros(3), False, 1.0, cuts)
    divided_time(row, np.ones(1), banned, sums, np.full(1, 9.0), np.zeros(3), 1.0)
    priced_cuts(row, np.ones(1), row.copy(), row.copy(), low, low + 2, cuts)

"""Networks that are made here rather than loaded: functions for the ``py:`` spec. They need the extra ``torch``."""

from placewright.networks.randomly_wired import randomly_wired
from placewright.networks.wiring import Wiring, draw_wiring

__all__ = ["Wiring", "draw_wiring", "randomly_wired"]

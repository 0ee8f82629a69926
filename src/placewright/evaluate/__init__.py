"""The one judge that turns a problem and a plan into numbers."""

from placewright.evaluate.evaluation import DeviceUse, Evaluation

__all__ = ["DeviceUse", "Evaluation"]

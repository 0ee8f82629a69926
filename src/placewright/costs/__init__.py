"""Processing times of operators: measured where a device is reachable, from its peaks where it is not."""

from placewright.costs.profile import Fallback, ProfileReport, profile
from placewright.costs.roofline import roofline

__all__ = ["Fallback", "ProfileReport", "profile", "roofline"]

"""Processing times of operators: measured where a device is reachable, from its peaks where it is not."""

from placewright.costs.analytic import analytic
from placewright.costs.profile import profile
from placewright.costs.profile_report import Fallback, ProfileReport
from placewright.costs.roofline import roofline

__all__ = ["Fallback", "ProfileReport", "analytic", "profile", "roofline"]

"""Run a plan for real and measure it."""

from placewright.execute.dispatch import run_plan

__all__ = ["run_plan"]

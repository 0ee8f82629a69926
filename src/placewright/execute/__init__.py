"""Run a plan for real and measure it."""

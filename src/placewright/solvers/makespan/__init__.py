"""Solvers for the makespan: one file an algorithm."""

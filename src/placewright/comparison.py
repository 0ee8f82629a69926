"""Several solvers side by side on one problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placewright.algorithm import OnProgress, ignore
from placewright.bounds import BOUNDS
from placewright.errors import InvalidInput
from placewright.problem import Problem
from placewright.result import Result
from placewright.solve import solve
from placewright.solvers import SOLVERS

__all__ = ["catalogue_of_solvers", "compare"]


def compare(
    problem: Problem,
    solvers: Sequence[str] | None = None,
    *,
    budget_s: float = 10.0,
    seed: int = 0,
    on_progress: OnProgress = ignore,
) -> list[tuple[str, Result]]:
    """Run each solver with the same budget and seed; every result then carries the best bound that any of them proved.

    Parameters
    ----------
    solvers : sequence of str, optional
        By default every one that supports the problem, and ``auto``.

    Raises
    ------
    InvalidInput
        If a solver is unknown, or can't take the problem and was asked for by name.
    """
    if solvers is None:
        solvers = [n for n, s in SOLVERS.items() if _fits(n, problem) and s.supports(problem) is None] + ["auto"]
    unknown = [name for name in solvers if name != "auto" and name not in SOLVERS]
    if unknown:
        raise InvalidInput(f"solver {unknown[0]!r} is unknown; use auto or some of {', '.join(SOLVERS)}")
    rows: list[tuple[str, Result]] = []
    for name in solvers:
        rows.append((name, solve(problem, solver=name, budget=budget_s, seed=seed, on_progress=on_progress)))
        if rows[-1][1].interrupted:
            break
    bound = max(r.lower_bound_s for _, r in rows)
    return [(name, replace(r, lower_bound_s=bound)) for name, r in rows]


def _fits(name: str, problem: Problem) -> bool:
    return problem.objective.name in SOLVERS[name].objectives


def catalogue_of_solvers() -> list[tuple[str, str, str]]:
    """Name, kind and summary of every solver and bound."""
    rows = [(name, "exact" if s.exact else "heuristic", s.summary) for name, s in SOLVERS.items()]
    for bounds in BOUNDS.values():
        for name, bound in bounds.items():
            summary = (bound.__doc__ or "").strip().splitlines()[0].rstrip(".")
            rows.append((name, "bound", summary))
    return rows

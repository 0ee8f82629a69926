"""The exception tree. Every message names the thing, the value, the limit and the remedy.

Infeasible and out-of-budget are statuses of a result, not exceptions; they become one only when a caller insists on a
plan (:meth:`placewright.Result.require_plan`).
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["DeviceLost", "ExecutionError", "InvalidInput", "MissingExtra", "NoPlan", "PlacewrightError"]


class PlacewrightError(Exception):
    """Base of every error that placewright raises on purpose.

    Attributes
    ----------
    exit_code : int
        What the command line exits with: 2 bad input, 3 infeasible, 4 budget spent, 1 a run that failed.
    """

    exit_code = 2


class InvalidInput(PlacewrightError, ValueError):
    """An input breaks one or several rules; all of them are in ``violations``.

    Examples
    --------
    >>> str(InvalidInput(["link a-b: bandwidth -1 is below 0; give a positive bandwidth"], what="cluster"))
    'cluster: link a-b: bandwidth -1 is below 0; give a positive bandwidth'
    """

    def __init__(self, violations: Iterable[str] | str, *, what: str = "") -> None:
        self.violations: tuple[str, ...] = (violations,) if isinstance(violations, str) else tuple(violations)
        self.what = what
        prefix = f"{what}: " if what else ""
        super().__init__(prefix + "; ".join(self.violations))


class MissingExtra(PlacewrightError, ImportError):
    """An optional dependency is needed and absent; the message says what to install."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}; install it with: pip install 'placewright[{extra}]'"
        )


class NoPlan(PlacewrightError):
    """A caller required a plan and there is none: the problem is infeasible, or the budget was spent."""

    def __init__(self, message: str, *, infeasible: bool) -> None:
        super().__init__(message)
        self.infeasible = infeasible
        self.exit_code = 3 if infeasible else 4


class ExecutionError(PlacewrightError, RuntimeError):
    """Running a plan failed: a worker died or hung, or the outputs differ from those of the unsplit model."""

    exit_code = 1


class DeviceLost(ExecutionError):
    """A device is lost while a plan runs: its process died, hangs, or has no memory.

    Attributes
    ----------
    device : str
        Its name.
    """

    def __init__(self, message: str, *, device: str) -> None:
        self.device = device
        super().__init__(message)

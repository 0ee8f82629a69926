"""placewright: decide where each operator of a neural network runs, prove how good that is, and run it.

Everything is imported when it is first used, so that ``import placewright`` stays light: the command line can't
heed Ctrl-C before that is done.

Examples
--------
>>> import placewright as pw
>>> graph = pw.OperatorGraph([pw.Operator("a"), pw.Operator("b")], [pw.Tensor("x", 0, (1,), size_bytes=8)])
>>> cluster = pw.Cluster([pw.Device("gpu"), pw.Device("cpu")], [pw.Link(1e-5, 1e9, link_class="same-host")])
>>> problem = pw.Problem(graph, cluster, [[1.0, 9.0], [1.0, 9.0]], objective="makespan")
>>> plan = pw.solve(problem, budget=5).require_plan()
>>> plan.value_s, plan.device_of.tolist()
(2.0, [0, 0])
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placewright.algorithm import Algorithm, Budget, Progress
    from placewright.capture import capture
    from placewright.cluster import Cluster, Device, Link
    from placewright.costs.analytic import analytic
    from placewright.costs.profile import profile
    from placewright.costs.roofline import roofline
    from placewright.errors import DeviceLost, ExecutionError, InvalidInput, MissingExtra, NoPlan, PlacewrightError
    from placewright.evaluate import evaluate
    from placewright.graph import Operator, OperatorGraph, Source, Tensor
    from placewright.io import read_cluster, read_plan, read_problem, write_cluster, write_plan, write_problem
    from placewright.objective import Makespan, MaxLoad, Offload, Throughput
    from placewright.plan import Copy, Plan, Provenance, Schedule, Transfer
    from placewright.problem import Problem, Times, Wish
    from placewright.result import Result, Status
    from placewright.solve import solve
    from placewright.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Budget",
    "Cluster",
    "Copy",
    "Device",
    "DeviceLost",
    "ExecutionError",
    "InvalidInput",
    "Link",
    "Makespan",
    "MaxLoad",
    "MissingExtra",
    "NoPlan",
    "Offload",
    "Operator",
    "OperatorGraph",
    "PlacewrightError",
    "Plan",
    "Problem",
    "Progress",
    "Provenance",
    "Result",
    "Schedule",
    "Source",
    "Status",
    "Tensor",
    "Throughput",
    "Times",
    "Transfer",
    "Wish",
    "analytic",
    "capture",
    "evaluate",
    "profile",
    "read_cluster",
    "read_plan",
    "read_problem",
    "roofline",
    "solve",
    "verify",
    "write_cluster",
    "write_plan",
    "write_problem",
]

_MODULES = {
    "algorithm": ("Algorithm", "Budget", "Progress"),
    "capture": ("capture",),
    "cluster": ("Cluster", "Device", "Link"),
    "costs": ("analytic", "profile", "roofline"),
    "errors": ("DeviceLost", "ExecutionError", "InvalidInput", "MissingExtra", "NoPlan", "PlacewrightError"),
    "evaluate": ("evaluate",),
    "graph": ("Operator", "OperatorGraph", "Source", "Tensor"),
    "io": ("read_cluster", "read_plan", "read_problem", "write_cluster", "write_plan", "write_problem"),
    "objective": ("Makespan", "MaxLoad", "Offload", "Throughput"),
    "plan": ("Copy", "Plan", "Provenance", "Schedule", "Transfer"),
    "problem": ("Problem", "Times", "Wish"),
    "result": ("Result", "Status"),
    "solve": ("solve",),
    "verify": ("verify",),
}

_LAZY = {name: f"placewright.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'placewright' has no attribute {name!r}")


class _Facade(ModuleType):
    """Keeps the functions of the facade: importing the submodule ``placewright.solve`` must not hide ``solve``."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Facade


def __dir__() -> list[str]:
    return sorted(__all__)

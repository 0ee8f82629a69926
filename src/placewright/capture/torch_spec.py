"""The ``py:`` spec: a function of the user's that returns a module and its example inputs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from placewright.errors import InvalidInput

__all__ = ["load_function", "load_py"]


def load_py(spec: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Call the function that ``package.module:function`` names; the working folder is on the import path.

    This runs the user's code: only call it on a spec that the user gave.

    Returns
    -------
    (module, args, kwargs)

    Raises
    ------
    InvalidInput
        If there is no such function, it fails, or returns something else than (module, example inputs), where example
        inputs are a tuple of positional arguments, a dict of keyword arguments, or a pair of both.
    """
    made = load_function(spec)
    try:
        returned = made()
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            f"it raised {type(error).__name__}: {first}; run it in Python to see where", what=spec
        ) from None
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], torch.nn.Module):
        raise InvalidInput(
            f"it returned {type(returned).__name__}, not (module, example_inputs); return a torch.nn.Module and a "
            "tuple of arguments, a dict of keyword arguments, or both",
            what=spec,
        )
    module, inputs = returned
    if isinstance(inputs, Mapping):
        return module, (), dict(inputs)
    if isinstance(inputs, tuple | list):
        if len(inputs) == 2 and isinstance(inputs[0], tuple) and isinstance(inputs[1], dict):
            return module, inputs[0], inputs[1]
        return module, tuple(inputs), {}
    if isinstance(inputs, torch.Tensor):
        return module, (inputs,), {}
    raise InvalidInput(f"its example inputs are {type(inputs).__name__}; return a tuple or a dict", what=spec)


def load_function(spec: str) -> Callable[..., Any]:
    """Find the function that ``package.module:function`` names; the working folder is on the import path.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    module_name, colon, function_name = spec.partition(":")
    if not colon or not module_name or not function_name:
        raise InvalidInput(f"{spec!r} names no function; write package.module:function", what="py")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        remedy = (
            f"run from the folder that holds {module_name.partition('.')[0]!r}, or put that on PYTHONPATH"
            if module_name.startswith(missing)
            else "install it"
        )
        raise InvalidInput(f"there is no module {missing!r}; {remedy}", what=spec) from None
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(f"importing it raised {type(error).__name__}: {first}", what=spec) from None
    known = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        close = get_close_matches(function_name, known, n=3)
        remedy = f"did you mean {' or '.join(map(repr, close))}?" if close else "check the name"
        raise InvalidInput(f"module {module_name!r} has no function {function_name!r}; {remedy}", what=spec)
    return found  # type: ignore[no-any-return]

"""Which texts of a ``.pt2`` file's graph are let through: operators, names and symbolic sizes."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_structure, treespec_dumps

from placewright.errors import InvalidInput

__all__ = ["checked_program"]

MAX_EXPRESSION = 2000
"""Characters of one symbolic size."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ATEN = re.compile(r"torch\.ops\.(aten|prims)\.(\w+)\.(\w+)", re.ASCII)
_REFUSED_OPERATORS = {"from_file", "save", "warn", "format", "_print", "percentFormat"}
_WRAPPERS = {"wrap_with_set_grad_enabled", "wrap_with_autocast", "cond"}
_PLAIN = {
    *("_operator.add", "_operator.sub", "_operator.mul", "_operator.floordiv", "_operator.truediv", "_operator.mod"),
    *("_operator.neg", "_operator.eq", "_operator.ne", "_operator.lt", "_operator.le", "_operator.gt", "_operator.ge"),
    *("_operator.and_", "_operator.or_", "_operator.getitem", "math.ceil", "math.floor", "math.trunc", "math.sqrt"),
    *("torch.sym_int", "torch.sym_float", "torch.sym_max", "torch.sym_min", "torch.sym_not", "torch.sym_sqrt"),
    *("torch.sym_ite", "torch.sym_sum"),
}
_SYMPY = {
    *("Symbol", "Integer", "Rational", "Float", "Add", "Mul", "Pow", "Max", "Min", "Mod", "Abs", "And", "Or", "Not"),
    *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan"),
    *("GreaterThan", "true", "false", "FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilToInt"),
    *("FloorToInt", "CeilDiv", "IntTrueDiv", "FloatTrueDiv", "TruncToInt", "ToFloat", "Identity"),
}


def checked_program(given: dict[str, Any]) -> dict[str, Any]:
    """Copy what is needed of a program's JSON, every text in it checked.

    Raises
    ------
    InvalidInput
        If it uses an operator, an argument, a name or a symbolic size that is not let through.
    """
    module = given["graph_module"]
    signature = _walk(module["signature"])
    leaves = tuple(0 for s in signature["input_specs"] if "user_input" in s or "constant_input" in s)
    results = tuple(0 for s in signature["output_specs"] if "user_output" in s or "loss_output" in s)
    call: dict[str, Any] = {
        "inputs": [],
        "outputs": [],
        "in_spec": treespec_dumps(tree_structure((leaves, {}))),
        "out_spec": treespec_dumps(tree_structure(results)),
        "forward_arg_names": None,
    }
    for spec in (*signature["input_specs"], *signature["output_specs"]):
        if {"custom_obj", "token"} & set(spec):
            raise InvalidInput("it has an input that is no tensor (a script object or token); keep it out of forward()")
    return {
        "graph_module": {
            "graph": _clean_graph(module["graph"]),
            "signature": signature,
            "module_call_graph": [{"fqn": "", "signature": call}],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {},
        "range_constraints": {_identifier(k): v for k, v in _walk(given["range_constraints"]).items()},
        "schema_version": {k: int(given["schema_version"][k]) for k in ("major", "minor")},
        "verifiers": [v for v in given.get("verifiers", []) if v in ("TRAINING", "ATEN")] or ["TRAINING"],
        "torch_version": "",
        "guards_code": [],
    }


def _clean_graph(graph: dict[str, Any]) -> dict[str, Any]:
    if graph.get("custom_obj_values"):
        raise InvalidInput("it uses a script object; keep it out of forward()")
    values = {
        key: {_identifier(name): _walk(value) for name, value in graph.get(key, {}).items()}
        for key in ("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values")
    }
    return {
        "inputs": _walk(graph["inputs"]),
        "outputs": _walk(graph["outputs"]),
        "nodes": [_clean_node(n) for n in graph["nodes"]],
        "is_single_tensor_return": bool(graph.get("is_single_tensor_return", False)),
        "custom_obj_values": {},
        **values,
    }


def _clean_node(node: dict[str, Any]) -> dict[str, Any]:
    target = str(node["target"])
    name = str(node.get("name") or "")
    _check_target(target, name)
    stack = node.get("metadata", {}).get("nn_module_stack")
    return {
        "target": target,
        "inputs": [
            {"name": _identifier(i["name"]) if i["name"] else "", "arg": _walk(i["arg"]), "kind": i.get("kind")}
            for i in node["inputs"]
        ],
        "outputs": _walk(node["outputs"]),
        "metadata": {"nn_module_stack": stack} if isinstance(stack, str) else {},
        "is_hop_single_tensor_return": node.get("is_hop_single_tensor_return"),
        "name": _identifier(name) if name else None,
    }


def _check_target(target: str, name: str) -> None:
    match = _ATEN.fullmatch(target)
    if match is not None and match[2] not in _REFUSED_OPERATORS:
        overload = getattr(getattr(getattr(torch.ops, match[1]), match[2], None), match[3], None)
        if isinstance(overload, torch._ops.OpOverload):
            return
    elif target in _PLAIN or target.removeprefix("torch.ops.higher_order.") in _WRAPPERS:
        return
    raise InvalidInput(
        f"operator {name or target!r} calls {target!r}, which is not read from files; "
        "load the program yourself and pass it by py:package.module:function"
    )


def _walk(value: Any) -> Any:
    """Copy of a JSON value in which every name is an identifier and every symbolic size is plain arithmetic."""
    if isinstance(value, list):
        return [_walk(v) for v in value]
    if not isinstance(value, dict):
        return value
    copy: dict[str, Any] = {}
    for key, item in value.items():
        check = _CHECKED.get(key)
        if key in ("as_custom_obj", "as_operator"):
            raise InvalidInput(f"it passes an argument of the kind {key[3:]!r}, which is not read from files")
        if key == "as_graph":
            copy[key] = {"name": _identifier(item["name"]), "graph": _clean_graph(item["graph"])}
        elif check is not None and item is not None and item != "":
            copy[key] = check(item)
        else:
            copy[key] = _walk(item)
    return copy


def _identifier(text: object) -> str:
    if isinstance(text, str) and _NAME.fullmatch(text) and not keyword.iskeyword(text):
        return text
    raise InvalidInput(f"the name {str(text)[:60]!r} is no identifier; the file is damaged")


def _expression(text: object) -> str:
    """Check a symbolic size: sums, products and known functions of integers and symbols."""
    shown = str(text)[:60]
    refuse = InvalidInput(f"the symbolic size {shown!r} is no plain arithmetic; the file is damaged")
    if not isinstance(text, str) or len(text) > MAX_EXPRESSION:
        raise refuse
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        checked = _is_arithmetic(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refuse from None
    if not checked:
        raise refuse
    return text


def _is_arithmetic(tree: ast.expr) -> bool:
    match tree:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and abs(value) < 2**64
        case ast.Name(id=name):
            return name in _SYMPY or re.fullmatch(r"z?[suf]\d{1,9}", name, re.ASCII) is not None
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _is_arithmetic(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _is_arithmetic(left) and _is_arithmetic(right)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=keywords):
            assumptions = all(k.arg in ("integer", "positive", "nonnegative", "real") for k in keywords)
            flags = all(isinstance(k.value, ast.Constant) and isinstance(k.value.value, bool) for k in keywords)
            return assumptions and flags and re.fullmatch(r"\w{1,40}", name, re.ASCII) is not None
        case ast.Call(func=ast.Name(id="Pow"), args=[base, exponent], keywords=[]):
            small = isinstance(exponent, ast.Call) and _small_integer(exponent)
            symbol = isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "Symbol"
            return small and symbol and _is_arithmetic(base)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in _SYMPY - {"Symbol", "Pow"} and all(_is_arithmetic(a) for a in args)
    return False


def _small_integer(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Name(id="Integer"), args=[number], keywords=[]):
            try:
                return abs(int(ast.literal_eval(number))) <= 8
            except (ValueError, TypeError):
                return False
    return False


_CHECKED: dict[str, Callable[[object], str]] = {"name": _identifier, "as_name": _identifier, "expr_str": _expression}

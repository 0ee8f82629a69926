"""The pages of the site that are made from the program: one for each solver and each bound, and their lists.

A docstring of an algorithm has four paragraphs that begin with the words in ``LABELS``; they become the table at the
head of its page. What else it says follows, then the docstrings that it points to.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from placewright.bounds import BOUNDS, PROOFS
from placewright.solvers import SOLVERS

LABELS = ("Guarantee", "Complexity", "Source", "When to use")

EXACTLY = {
    "makespan": "[makespan](../../architecture.md#the-makespan-exactly)",
    "max-load": "[max-load](../../architecture.md#the-max-load-exactly)",
    "throughput": "[throughput](../../throughput.md)",
    "offload": "[offload latency](../../architecture.md#the-offload-latency-exactly)",
}
"""Objective -> a link to what is minimised."""

SIGNS = {
    r"\lambda": "λ", r"\pi": "π", r"\sum": "Σ", r"\ge": "≥", r"\le": "≤", r"\in": "∈", r"\ni": "∋", r"\emptyset": "∅",
    r"\subset": "⊂", r"\setminus": "∖", r"\dots": "…", r"\max": "max", r"\min": "min", r"\,": " ", r"\{": "{",
    r"\}": "}",
}  # fmt: skip
"""Commands of the formulas in docstrings -> plain text, so that pages need no program to show them."""


@dataclass(frozen=True)
class Page:
    """One algorithm as the registries know it.

    Attributes
    ----------
    kind : str
        ``solvers`` or ``bounds``.
    objective, name : str
    algorithm : callable
    proof : str
        Whether it ends with a proof, or when a bound is computed.
    summary : str
        One line.
    """

    kind: str
    objective: str
    name: str
    algorithm: Any
    proof: str
    summary: str

    @property
    def path(self) -> str:
        """Where the page stands below ``docs``."""
        return f"algorithms/{self.objective}/{self.name}{'-bound' if self.kind == 'bounds' else ''}.md"

    @property
    def documented(self) -> Any:
        """The function or class that has the docstring."""
        of_its_own = inspect.isfunction(self.algorithm) or inspect.isclass(self.algorithm)
        return self.algorithm if of_its_own else type(self.algorithm)


def algorithms() -> Iterator[Page]:
    """Every entry of the registries, in their order."""
    for objective, solvers in SOLVERS.items():
        for name, entry in solvers.items():
            proof = "ends with one, given time" if entry.exact else "none of its own"
            yield Page("solvers", objective, name, entry.algorithm, proof, entry.summary)
    for registry, proof in ((BOUNDS, "a bound for every plan, at once"), (PROOFS, "a bound that rises with time")):
        for objective, bounds in registry.items():
            for name, bound in bounds.items():
                page = Page("bounds", objective, name, bound, proof, "")
                first = (inspect.getdoc(page.documented) or "").split("\n", 1)[0]
                yield Page("bounds", objective, name, bound, proof, first.rstrip("."))


def labelled(doc: str) -> tuple[dict[str, str], str]:
    """Take the labelled paragraphs out of a docstring's prose."""
    found: dict[str, str] = {}
    rest: list[str] = []
    label = None
    for line in doc.splitlines():
        start = re.match(rf"({'|'.join(LABELS)}): (.*)", line)
        if start:
            label = start[1]
            found[label] = start[2]
        elif label and line.strip():
            found[label] += " " + line.strip()
        else:
            label = None
            rest.append(line)
    return found, "\n".join(rest).strip()


def sections(doc: str) -> tuple[str, dict[str, str]]:
    """Part a docstring into its prose and its numpydoc sections."""
    parts = re.split(r"^(\w+)\n-{3,}\n", doc, flags=re.MULTILINE)
    return parts[0].strip(), {parts[k]: parts[k + 1].strip("\n") for k in range(1, len(parts), 2)}


def plain(formula: str) -> str:
    """Write a formula in plain text."""
    formula = re.sub(r"_\{([^{}]*)\}", r"_(\1)", formula)
    for sign in sorted(SIGNS, key=len, reverse=True):
        formula = formula.replace(sign, SIGNS[sign])
    return " ".join(formula.split())


def linked(name: str) -> str:
    """Write what a docstring points to: an algorithm as a link to its page, anything else by its name."""
    page = next((p for p in algorithms() if f"{p.documented.__module__}.{p.documented.__qualname__}" == name), None)
    short = f"`{name.removeprefix('placewright.').lstrip('.')}`"
    return f"[{page.name}](../../{page.path})" if page else short


def markdown(text: str) -> str:
    """Turn the markup of docstrings into that of pages."""
    text = re.sub(
        r"^( *)\.\. math:: ?(.*(?:\n(?=\1 +\S).*)*)",
        lambda m: f"{'    ' if m[1] else ''}`{plain(m[2])}`",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r":math:`([^`]*)`", lambda m: f"`{plain(m[1])}`", text)
    text = re.sub(r":\w+:`~?([^`]*)`", lambda m: linked(m[1]), text)
    text = re.sub(r"``([^`]*)``", r"`\1`", text)
    return re.sub(r"^ {3}(?=\S)", "    ", text, flags=re.MULTILINE)


def fields(section: str) -> str:
    """Write parameters as a list: name and type, then what it is."""
    lines = []
    for line in section.splitlines():
        if not line.strip():
            continue
        if line.startswith(" "):
            lines[-1] += f" {line.strip()}" if lines[-1].startswith("  ") else ""
            if not lines[-1].startswith("  "):
                lines.append(f"  {line.strip()}")
        else:
            names, _, kind = line.partition(" : ")
            lines.append(f"- **`{names}`** {kind}".rstrip())
    return markdown("\n".join(lines).replace("\n  ", ": "))


def docstring(name: str) -> str:
    """Read the docstring of a module, or of a function or class of one, without running it: it may need an extra."""
    home, _, last = name.rpartition(".")
    outer = find_spec(home)
    inner = find_spec(name) if outer and outer.submodule_search_locations else None
    module = inner or outer
    if module is None or module.origin is None:
        raise ModuleNotFoundError(f"a docstring points to {name!r}, which is not there")
    tree = ast.parse(Path(module.origin).read_text())
    found: Any = tree
    if inner is None:
        found = next(n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == last)
    return ast.get_docstring(found) or ""


def pointed_to(prose: str, module: str) -> Iterator[str]:
    """Modules, classes and functions of the program that a docstring points to, each once, but for algorithms."""
    seen = {f"{page.documented.__module__}.{page.documented.__qualname__}" for page in algorithms()}
    for name in re.findall(r":(?:mod|class|func):`~?([\w.]+)`", prose):
        whole = module.rsplit(".", 1)[0] + name if name.startswith(".") else name
        if whole not in seen and whole.startswith("placewright."):
            seen.add(whole)
            yield whole


def text_of(page: Page) -> str:
    """Write the page of an algorithm."""
    doc = inspect.getdoc(page.documented) or ""
    prose, found = sections(doc)
    first, _, rest = prose.partition("\n\n")
    facts, rest = labelled(rest)
    command = f"placewright plan MODEL --cluster C --objective {page.objective} --solver {page.name}"
    is_solver = page.kind == "solvers"
    rows = {"Problem": f"{EXACTLY[page.objective]}: {markdown(' '.join(first.split()))}", "Proof": page.proof}
    rows |= {label: markdown(facts[label]) for label in LABELS if label in facts}
    rows |= {"Runs as": f"`{command}`"} if is_solver else {}
    rows["In the code"] = f"`{page.documented.__module__}.{page.documented.__qualname__}`"
    out = [f"# {page.name}", "Solver." if is_solver else "Lower bound.", "| | |\n|---|---|"]
    out[-1] += "".join(f"\n| **{name}** | {text.replace('|', chr(92) + '|')} |" for name, text in rows.items())
    if rest:
        out += ["## How it works", markdown(rest)]
    for name in ("Attributes", "Parameters"):
        if name in found:
            out += ["## Parameters", fields(found[name])]
    if "Examples" in found:
        out += ["## Example", *example(found["Examples"])]
    for whole in pointed_to(prose, page.documented.__module__):
        more = sections(docstring(whole))[0]
        if more:
            out += [f"## `{whole.rpartition('.')[2]}`", markdown(more)]
    return "\n\n".join(out) + "\n"


def example(section: str) -> Iterator[str]:
    """Part an example into what it says and what is typed."""
    for block in re.split(r"\n\s*\n", textwrap.dedent(section)):
        yield f"```pycon\n{block}\n```" if block.startswith(">>>") else markdown(block)


def pages() -> dict[str, str]:
    """Path below ``docs`` -> text, of every page that is made here."""
    found = list(algorithms())
    lists = ["# Algorithms", "One page each, made from the program: what `--solver` takes, and the lower bounds.\n"]
    for objective in SOLVERS:
        lists.append(f"## {objective}\n")
        lists.append("| algorithm | what it is | proof |\n|---|---|---|")
        for page in found:
            if page.objective == objective:
                what = page.summary if page.kind == "solvers" else f"lower bound: {page.summary}"
                link = page.path.removeprefix("algorithms/")
                lists.append(f"| [{page.name}]({link}) | {markdown(what).replace('|', chr(92) + '|')} | {page.proof} |")
        lists.append("")
    return {"algorithms/index.md": "\n".join(lists)} | {page.path: text_of(page) for page in found}


def navigation() -> list[Any]:
    """List these pages for the navigation of the site."""
    found = list(algorithms())
    return ["algorithms/index.md"] + [
        {
            objective: [
                {page.name + (" (bound)" if page.kind == "bounds" else ""): page.path}
                for page in found
                if page.objective == objective
            ]
        }
        for objective in SOLVERS
    ]

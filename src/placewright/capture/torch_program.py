"""An exported program taken apart: which fx nodes are operators, which are folded, and what orders them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, Node

from placewright.capture.torch_alias import Aliases, find_aliases, is_getitem
from placewright.capture.torch_fold import constant_nodes, first_equals, folded_parameters
from placewright.capture.torch_inline import attribute, flat_graph
from placewright.capture.torch_meta import tensors_of
from placewright.capture.torch_names import operator_names
from placewright.capture.torch_weights import Weight, find_weights, mutation_targets

__all__ = ["TorchOperator", "TorchProgram", "sub_graphs", "take_apart", "weights_read"]

_ASSERTS = ("_assert", "sym_constrain_range")


@dataclass(frozen=True, slots=True)
class TorchOperator:
    """One operator: an fx node with the ``getitem`` nodes that take its results.

    Attributes
    ----------
    name : str
        Unique; module path, with the node's name where the module has several operators.
    node : fx.Node
    results : tuple of fx.Node
        The nodes that stand for its tensors: the node itself, or its ``getitem`` nodes.
    """

    name: str
    node: Node
    results: tuple[Node, ...]


@dataclass(frozen=True)
class TorchProgram:
    """What capture and execution both go by.

    Attributes
    ----------
    graph : fx.Graph
        Flat; see :func:`placewright.capture.torch_inline.flat_graph`.
    owner : Module
        The program's graph module, which holds sub-graphs.
    operators : tuple of TorchOperator
        In the order of the graph.
    folded : frozenset of fx.Node
        Nodes that every device which reads them computes once for itself when the weights are loaded.
    weight_views : frozenset of fx.Node
        Those of the folded nodes that are views of weights.
    first_of : dict of fx.Node to fx.Node
        For each folded node the first one that computes the same.
    free : frozenset of fx.Node
        Nodes that hold no tensor and follow from the inputs' sizes alone.
    inputs : tuple of str
        Names of the user inputs' nodes, in order.
    outputs : tuple of (node or constant)
        What the user gets, in order.
    weights : mapping of node name to Weight
    aliases : Aliases
    order : tuple of (int, int)
        Pairs of operators (earlier, later) that touch the same mutated storage, so must keep their order.
    colocation : tuple of tuple of int
        Classes of operators that must share a device.
    folded_operators : dict of fx.Node to str
        Of the folded nodes those that would be operators but for ``fold``, with their names.
    """

    graph: Graph
    owner: torch.nn.Module
    operators: tuple[TorchOperator, ...]
    folded: frozenset[Node]
    weight_views: frozenset[Node]
    first_of: dict[Node, Node]
    free: frozenset[Node]
    inputs: tuple[str, ...]
    outputs: tuple[object, ...]
    weights: Mapping[str, Weight]
    aliases: Aliases
    order: tuple[tuple[int, int], ...]
    colocation: tuple[tuple[int, ...], ...]
    folded_operators: dict[Node, str]


def take_apart(program: ExportedProgram, *, fold: bool = False) -> TorchProgram:
    """Sort the nodes of a program into operators, folded nodes and nodes without work.

    - ``_assert*`` and range constraints, and what only they read, are dropped.
    - Folded are (a) nodes that depend on no user input, parameter or mutated buffer and draw no random numbers, as ONNX
      constant folding would (``arange``, masks, rotary tables), and (b) views of weights. With ``fold``, and unless the
      program computes gradients, also (c) what is computed from parameters and constants alone, as far as
      :func:`placewright.capture.torch_fold.folded_parameters` takes it; else that stays an operator.
    - Size arithmetic that follows from the inputs' sizes alone is free; sizes that depend on data are operators.
    """
    graph = flat_graph(program)
    weights = find_weights(program, graph)
    write_back = mutation_targets(program)
    aliases = find_aliases(graph, {w.node: w.storage for w in weights.values()})
    specs = program.graph_signature.input_specs
    inputs = tuple(s.arg.name for s in specs if s.kind == InputKind.USER_INPUT)
    live = _live_nodes(graph, aliases)
    free = _free_nodes(graph)
    written_back = {name for pair in write_back.items() for name in pair}
    changing = set(inputs) | written_back
    constant = constant_nodes(graph, live, aliases, weights, changing)
    views = _weight_views(live, aliases, weights, written_back)
    folded = constant | views
    computed = [n for n in live if n.op == "call_function" and not is_getitem(n) and n not in folded and n not in free]
    names = operator_names(computed, aliases.views)  # the same with and without folding
    if fold and not _computes_gradients(program):
        candidates = constant_nodes(graph, live, aliases, weights, changing, parameters=True) - folded
        folded |= folded_parameters(live, candidates, folded, aliases, weights)
    nodes = [n for n in computed if n not in folded]
    operators = tuple(TorchOperator(names[n], n, _results(n)) for n in nodes)
    index = {r: k for k, v in enumerate(operators) for r in (v.node, *v.results)}
    order, classes = _mutations(operators, index, aliases, write_back, graph)
    classes += _tied(operators, views, weights)
    returned = graph.output_node().args[0]
    output_specs = program.graph_signature.output_specs
    assert isinstance(returned, tuple | list)
    kept = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    outputs = tuple(value for value, spec in zip(returned, output_specs, strict=True) if spec.kind in kept)
    return TorchProgram(
        graph=graph,
        owner=program.graph_module,
        operators=operators,
        folded=frozenset(folded),
        weight_views=frozenset(views),
        first_of=first_equals(live, folded, aliases),
        free=frozenset(free),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        aliases=aliases,
        order=order,
        colocation=tuple(classes),
        folded_operators={n: names[n] for n in computed if n in folded},
    )


def _computes_gradients(program: ExportedProgram) -> bool:
    """Whether it is a step of training: folded, its parameters could not change."""
    return any(
        "GRADIENT" in s.kind.name or s.kind == OutputKind.LOSS_OUTPUT for s in program.graph_signature.output_specs
    )


def _results(node: Node) -> tuple[Node, ...]:
    users = list(node.users)
    if users and all(is_getitem(u) for u in users) and not isinstance(node.meta.get("val"), torch.Tensor):
        return tuple(users)
    return (node,)


def _live_nodes(graph: Graph, aliases: Aliases) -> list[Node]:
    """Nodes that an output or a write needs, in order, without assertions."""
    needed: set[Node] = {graph.output_node()} | set(aliases.writes)
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return [n for n in graph.nodes if n in needed and not str(getattr(n.target, "__name__", "")).startswith(_ASSERTS)]


def _free_nodes(graph: Graph) -> set[Node]:
    """Numbers that follow from placeholders: sizes of inputs and weights, and arithmetic on them."""
    free: set[Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and not tensors_of(node.meta.get("val")) and node.meta.get("val") is not None:
            sized = [n for n in node.all_input_nodes if n not in free]
            if all(n.op == "placeholder" for n in sized) and "item" not in str(node.target):
                free.add(node)
    return free


def _weight_views(
    live: list[Node], aliases: Aliases, weights: Mapping[str, Weight], written_back: set[str]
) -> set[Node]:
    """Find views of weights that nothing writes to, and their ``getitem`` nodes."""
    written = {s for row in aliases.writes.values() for s in row}
    found: set[Node] = set()
    for node in live:
        sources = node.all_input_nodes
        if (
            sources
            and aliases.storage_of[node] not in written
            and (node in aliases.views or is_getitem(node))
            and all((n.name in weights and n.name not in written_back) or n in found for n in sources)
        ):
            found.add(node)
    return found


def _mutations(
    operators: tuple[TorchOperator, ...],
    index: dict[Node, int],
    aliases: Aliases,
    write_back: dict[str, str],
    graph: Graph,
) -> tuple[tuple[tuple[int, int], ...], list[tuple[int, ...]]]:
    """Order and classes of the operators that touch a storage which is written at some time."""
    order: set[tuple[int, int]] = set()
    classes: list[tuple[int, ...]] = []
    for storage, nodes in aliases.accesses(v.node for v in operators).items():
        members = [index[n] for n in nodes]
        if not any(storage in aliases.writes.get(n, ()) for n in nodes):
            continue  # only folded nodes write to it, before any operator runs
        classes.append(tuple(members))
        last_write, since = -1, list[int]()
        for v in members:
            if storage in aliases.writes.get(operators[v].node, ()):
                order.update((u, v) for u in since)
                last_write, since = v, []
            else:
                since.append(v)
            if last_write not in (-1, v):
                order.add((last_write, v))
    by_name = {n.name: n for n in graph.nodes}
    for result, target in write_back.items():
        readers = [index[u] for u in by_name[target].users if u in index]
        makers = [index[by_name[result]]] if by_name[result] in index else []
        classes.append(tuple(sorted(set(readers + makers))))
    return tuple(sorted(order)), [c for c in classes if len(c) > 1]


def _tied(
    operators: tuple[TorchOperator, ...], views: Collection[Node], weights: Mapping[str, Weight]
) -> list[tuple[int, ...]]:
    """Classes of the operators that read the same parameter, directly or through folded views."""
    readers: dict[object, dict[int, None]] = {}
    for k, v in enumerate(operators):
        for weight in weights_read(v.node, views, weights):
            if weight.parameter:
                readers.setdefault(weight.storage, {})[k] = None
    return [tuple(row) for row in readers.values() if len(row) > 1]


def weights_read(node: Node, views: Collection[Node], weights: Mapping[str, Weight]) -> list[Weight]:
    """Parameters, buffers and constants that a node reads directly or through folded views of them, each once."""
    found: dict[str, Weight] = {}
    pending = list(node.all_input_nodes)
    while pending:
        source = pending.pop(0)
        if source.name in weights:
            found[source.name] = weights[source.name]
        elif source in views:
            pending += source.all_input_nodes
    return list(found.values())


def sub_graphs(node: Node, owner: torch.nn.Module) -> list[torch.fx.GraphModule]:
    """Sub-graphs that a higher-order operator is given."""
    found = [attribute(n, owner) for n in node.all_input_nodes if n.op == "get_attr"]
    return [g for g in found if isinstance(g, torch.fx.GraphModule)]

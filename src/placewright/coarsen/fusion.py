"""Fusion: operators that a back-end runs as one become one, and the graph stays acyclic."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from placewright.coarsen.groups import Groups, contract
from placewright.coarsen.loops import join_loops
from placewright.coarsen.patterns import join_patterns
from placewright.coarsen.regions import join_regions
from placewright.coarsen.rules import ANY, FusionRules
from placewright.graph import OperatorGraph

__all__ = ["fuse"]


def fuse(graph: OperatorGraph, rules: FusionRules = ANY, *, support: Sequence[Hashable] | None = None) -> OperatorGraph:
    """Merge operators that a back-end never separates.

    Coarsening by the fusions of inference back-ends is the idea of GCOF (Moirai, arXiv 2312.04025, section 3.1): a
    placement must not cut what the back-end fuses, and need not decide what it fuses.

    Parameters
    ----------
    graph : OperatorGraph
    rules : FusionRules
        Patterns first, then loops, then regions, as far as the rules have them.
    support : sequence of hashable, optional
        For each operator what stands for the devices that may run it: operators of unlike support are not merged.
        ``None``: whatever those may that it is merged with.

    Returns
    -------
    OperatorGraph
        Sums of FLOPs and of what is held are as before; memory traffic is less the tensors that no longer leave
        their group. A merged operator is named after its heaviest part and lists all ``parts`` in topological order.
        Tensors that leave a group keep their names. Colocation classes are carried over.

    Notes
    -----
    The graph of groups is acyclic after every merge; why is said where each kind of rule is applied.

    Examples
    --------
    >>> from placewright.graph import Operator, Tensor
    >>> graph = OperatorGraph([Operator("conv", "Conv", 80), Operator("relu", "Relu", 8), Operator("pool", "MaxPool")],
    ...                       [Tensor("x", 0, (1,), 32), Tensor("y", 1, (2,), 32)])
    >>> [(v.name, v.kind, v.parts) for v in fuse(graph).operators]
    [('conv', 'Conv+Relu', ('conv', 'relu')), ('pool', 'MaxPool', ())]
    """
    groups = Groups(graph, support)
    for patterns in rules.stages:
        join_patterns(groups, patterns)
    if rules.loops is not None:
        join_loops(groups, rules.loops)
    if rules.regions:
        join_regions(groups)
    return contract(groups)

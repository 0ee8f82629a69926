"""From a captured graph and a cluster to times: measured here, or from figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

from placewright.cluster import Cluster
from placewright.costs import analytic, profile, roofline
from placewright.errors import InvalidInput
from placewright.graph import OperatorGraph
from placewright.host import available_cores, is_here
from placewright.problem import Times

__all__ = ["Costs", "as_costs", "check_measurable", "first_few", "times_for"]

Costs: TypeAlias = Literal["auto", "profile", "analytic", "roofline"]


def as_costs(name: str) -> Costs:
    """Check the name of a way to get times."""
    for known in get_args(Costs):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInput(f"--costs {name!r} is unknown; use one of {', '.join(get_args(Costs))}")


def check_measurable(cluster: Cluster) -> None:
    """Refuse a cluster of which nothing is here.

    Raises
    ------
    InvalidInput
        That says what cores are here, and what to do without measuring.
    """
    if not any(map(is_here, cluster.devices)):
        raise InvalidInput(
            f"no device of the cluster is a CPU with 'cores' among this machine's "
            f"({first_few(sorted(available_cores()))}), so none can be profiled; plan with --costs analytic, "
            "or a cluster that 'placewright probe' made"
        )


def times_for(
    model: str,
    graph: OperatorGraph,
    cluster: Cluster,
    *,
    costs: Costs = "auto",
    on_progress: Callable[[str], None] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> tuple[Times, Cluster]:
    """Get processing times: measured on devices that are CPU cores of this machine, else from figures.

    ``auto`` measures when every device of the cluster is here, so that measured and modelled devices aren't mixed
    unasked, and is ``analytic`` otherwise; ``profile`` measures what it can reach; ``analytic`` (size-dependent curves)
    and ``roofline`` (constant efficiencies) measure nothing.

    Returns
    -------
    Times
    Cluster
        The one given, with the measured cut overheads of measured devices that state none.
    """
    reachable = [is_here(d) for d in cluster.devices]
    if model.startswith("hf:"):  # shapes alone: nothing of it can be run
        if costs == "profile":
            raise InvalidInput(f"--costs profile measures operators, and {model!r} has shapes alone; use analytic")
        costs = "analytic" if costs == "auto" else costs
    if costs == "roofline":
        return roofline(graph, cluster), cluster
    if costs == "analytic" or (costs == "auto" and not all(reachable)):
        return analytic(graph, cluster), cluster
    check_measurable(cluster)
    tell = on_progress or (lambda line: None)
    tell(f"measuring the operators of {model} on {sum(reachable)} devices; times are kept for the next time")
    report = profile(model, graph, cluster, on_progress=on_step)
    for fallback in report.fallbacks:
        tell(f"not measured: {fallback.operator} on {fallback.device}: {fallback.reason}")
    for note in report.notes:
        tell(f"note: {note}")
    return report.times, report.cluster(cluster)


def first_few(things: Sequence[object]) -> str:
    """List the first eight things.

    Examples
    --------
    >>> first_few(range(9))
    '0, 1, 2, 3, 4, 5, 6, 7, ...'
    """
    return ", ".join(map(str, things[:8])) + (", ..." if len(things) > 8 else "")

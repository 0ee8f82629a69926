"""What a series of spans costs at given prices, and the cheapest placements: the Lagrangian of the priced bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from placewright._kernel.schedule import transfer_time
from placewright._kernel.span_search import least_time, scratch_for, time_of
from placewright.algorithm import Budget
from placewright.arrays import arrays_of
from placewright.bounds.makespan.series import Series
from placewright.bounds.makespan.span_times import FREE

__all__ = ["Column", "Item", "Pricing", "Windows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

NODES = 400
"""Most nodes of one search."""

WIDTH = 0.3
"""Part of the value that a placement may cost more and still be handed out."""

DEVICE, PORT = 0, 1

Item: TypeAlias = tuple[int, int, int, int, float]
"""First and last instant, DEVICE or PORT, its class, and the seconds that it is busy between them."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Rows T[last] - T[first] >= load of one class, a device or port of it on average, and their multipliers.

    Attributes
    ----------
    first, last, sort, cls : (W,) arrays
    weight : (W,) array
        At least 0. Those that lie over one span sum up to 1 at most.
    """

    first: Ints
    last: Ints
    sort: Ints
    cls: Ints
    weight: Floats

    def price(self, first: int, last: int, sort: int, classes: int) -> Floats:
        """(classes,) what a second pays that lies between two instants."""
        over = (self.first <= first) & (self.last >= last) & (self.sort == sort)
        return np.bincount(self.cls[over], self.weight[over], minlength=classes).astype(np.float64)

    def left(self, spans: int) -> Floats:
        """(spans,) what is left of 1 for the time of each span."""
        change = np.zeros(spans + 1)
        np.add.at(change, self.first, self.weight)
        np.add.at(change, self.last, -self.weight)
        return 1.0 - np.cumsum(change)[:-1]


@dataclass(frozen=True, slots=True)
class Column:
    """A placement of one span, or of one operator beside the spans that hangs on none, with what hangs on it.

    Attributes
    ----------
    block : int
        Number of the span, or the number of spans + that of the side operator.
    entry, exit : int
        Classes of the devices at the ends; 0 without.
    time_s : float
    items : tuple of Item
    held : tuple of float
        Bytes on each class of devices.
    """

    block: int
    entry: int
    exit: int
    time_s: float
    items: tuple[Item, ...]
    held: tuple[float, ...]


class Pricing:
    """Finds the cheapest placements of a series."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.a = arrays_of(series.problem)
        self.resident = series.problem.resident_bytes.astype(np.float64)
        self.side = {s.operator: s for s in series.sides}
        self._described: dict[tuple[int, int, int, bytes], Column] = {}
        self.hanging: dict[int, list[int]] = {}
        for v, (x, _) in series.parent.items():
            self.hanging.setdefault(x, []).append(v)

    def at(
        self, windows: Windows, prices: Floats, most: float, budget: Budget | None = None
    ) -> tuple[float, list[Column]]:
        """Value of the Lagrangian at multipliers of windows and prices (C,) of bytes, and the placements that count.

        Everything is at least this: sum over spans of left x time + sum over windows of weight x load + sum over
        classes of price x bytes. The capacities are not taken off yet. The placements are, for each span and pair of
        devices at its ends, the cheapest, where the cheapest whole with it costs at most ``most`` more, or a part of
        the value more. With ``budget`` spent before the value is known, it is ``inf``; later, placements are missing.
        """
        clock = Budget() if budget is None else budget
        round_ = _Round(self, windows, prices)
        series = self.series
        left = np.maximum(windows.left(len(series.spans)), 0.0)
        ways: list[list[tuple[int, int, float, int, int, Ints]]] = []
        reach: list[dict[int, float]] = [{0: 0.0}]
        for k, span in enumerate(series.spans):
            ways.append([])
            following: dict[int, float] = {}
            for i, j in series.kinds(k):
                if clock.spent:
                    return inf, []
                entry = int(series.device_class[i]) if span.entry is not None else 0
                last = int(series.device_class[j]) if span.exit is not None else 0
                value, device = round_.least(k, i, j, float(left[k]))
                ways[-1].append((entry, last, value, i, j, device))
                if entry in reach[-1] and reach[-1][entry] + value < following.get(last, inf):
                    following[last] = reach[-1][entry] + value
            reach.append(following)
        total = min(reach[-1].values(), default=inf)
        most = min(most, WIDTH * total)
        columns, behind = list[Column](), dict.fromkeys(reach[-1], 0.0)
        for k in range(len(series.spans) - 1, -1, -1):
            before: dict[int, float] = {}
            for entry, last, value, i, j, device in ways[k]:
                below = value + behind.get(last, inf)
                before[entry] = min(before.get(entry, inf), below)
                if not clock.spent and (device >= 0).all() and reach[k].get(entry, inf) + below <= total + most:
                    columns.append(round_.column(k, i, j, device))
            behind = before
        for v in self.side:
            if v not in series.parent:
                best = int(round_.cost[v].argmin())
                total += float(round_.cost[v][best])
                if clock.spent:
                    continue
                columns.append(round_.of_side(v, best))
        return total, columns

    def described(self, k: int, i: int, j: int, device: Ints) -> Column:
        """Describe a placement of span k without what hangs on it."""
        at = k, i, j, device.tobytes()
        if at not in self._described:
            self._described[at] = self._describe(k, i, j, device)
        return self._described[at]

    def _describe(self, k: int, i: int, j: int, device: Ints) -> Column:
        s, span = self.series, self.series.spans[k]
        network, _ = s.placed(k, i, j)
        load, held, carried = (np.zeros(m) for m in (len(s.devices_in), len(s.devices_in), len(s.ports_in)))
        for m, v in enumerate(span.operators):
            if v != span.entry:
                load[s.device_class[device[m]]] += network.processing[m, device[m]]
                held[s.device_class[device[m]]] += self.resident[v]
        for u, maker in enumerate(network.producer.tolist()):
            source = int(device[maker])
            for x in dict.fromkeys(device[network.reader[network.reader_ptr[u] : network.reader_ptr[u + 1]]].tolist()):
                if x != source:
                    self.carry(source, x, transfer_time(network, u, source, x), carried)
        items = [(k, k + 1, DEVICE, c, float(x)) for c, x in enumerate(load) if x > 0.0]
        items += [(k, k + 1, PORT, c, float(x)) for c, x in enumerate(carried) if x > 0.0]
        entry = int(s.device_class[i]) if span.entry is not None else 0
        last = int(s.device_class[j]) if span.exit is not None else 0
        time_s = float(time_of(network, device, scratch_for(network)))
        return Column(k, entry, last, time_s, tuple(items), tuple(held.tolist()))

    def carry(self, source: int, target: int, seconds: float, carried: Floats) -> None:
        """Add a transfer to what each class of links, ports and channels carries."""
        if source != target:
            for r in self.a.network.resources[source, target]:
                if r >= 0:
                    carried[self.series.port_class[r]] += seconds


class _Round:
    """One evaluation: what operators beside the spans cost, and the searches, each distinct one made once."""

    def __init__(self, pricing: Pricing, windows: Windows, prices: Floats) -> None:
        self.p, self.windows = pricing, windows
        s = self.s = pricing.series
        self.per_device = prices[s.device_class]
        self._tolls: dict[tuple[int, int], Floats] = {}
        self._rates: dict[tuple[int, int], Floats] = {}
        self._known: dict[tuple[object, ...], tuple[float, Ints]] = {}
        self._prices: dict[int, Floats] = {}
        self.cost: dict[int, Floats] = {}
        g = pricing.a.network
        for v in pricing.side:  # ascending, so what hangs on v comes before it
            rate = self.rate(pricing.side[v].first, pricing.side[v].last)
            with np.errstate(invalid="ignore"):
                own = np.where(np.isfinite(g.processing[v]), rate * g.processing[v], inf)
            own = np.where(np.isfinite(own), own + self.per_device * pricing.resident[v], inf)
            self.cost[v] = own + self.hanging(v, pricing.side[v].last)

    def rate(self, first: int, last: int) -> Floats:
        """(D,) what a second on each device pays."""
        if (first, last) not in self._rates:
            price = self.windows.price(first, last, DEVICE, len(self.s.devices_in)) / self.s.devices_in
            self._rates[first, last] = price[self.s.device_class]
        return self._rates[first, last]

    def toll(self, first: int, last: int) -> Floats:
        """(D, D) what a second of transfer pays."""
        if (first, last) not in self._tolls:
            g, found = self.p.a.network, np.zeros((len(self.s.alike),) * 2)
            if g.n_resources:
                price = self.windows.price(first, last, PORT, len(self.s.ports_in)) / self.s.ports_in
                each = np.append(price[self.s.port_class], 0.0)
                found = each[g.resources].sum(axis=2)
                np.fill_diagonal(found, 0.0)
            self._tolls[first, last] = found
        return self._tolls[first, last]

    def hanging(self, x: int, last: int) -> Floats:
        """(D,) what is cheapest for all that hangs on x when x, which starts before ``last``, is on each device."""
        total = np.zeros(len(self.s.alike))
        for v in self.p.hanging.get(x, ()):
            total += self._to(v, last).min(axis=0)
        return total

    def _to(self, v: int, last: int) -> Floats:
        """(D, D) cost of v on each device, and of its tensor's transfer to each."""
        u = self.s.parent[v][1]
        first = self.p.side[v].first
        toll = self.toll(first, last)
        with np.errstate(invalid="ignore"):
            way = np.where(toll > 0.0, toll * self._seconds(u), 0.0)
        return self.cost[v][:, None] + way

    def _seconds(self, u: int) -> Floats:
        g = self.p.a.network
        if g.transfer.shape[0]:
            return np.asarray(g.transfer[u], dtype=np.float64)
        return np.asarray(g.latency + g.size[u] * g.per_byte, dtype=np.float64)

    def unit_prices(self, k: int) -> Floats:
        """(U, D) what the units of span k pay on each device, with all that hangs on them."""
        if k not in self._prices:
            span = self.s.spans[k]
            p = span.network.processing
            own = np.where(np.isfinite(p), p, 0.0) * self.rate(k, k + 1)
            for m, v in enumerate(span.operators):
                if v == span.entry:
                    own[m] = 0.0
                    continue
                own[m] += self.p.resident[v] * self.per_device
                if v in self.p.hanging:
                    own[m] += self.hanging(v, k + 1)
            self._prices[k] = np.add.reduceat(own[span.member], span.unit_ptr[:-1], axis=0)
        return self._prices[k]

    def least(self, k: int, i: int, j: int, left: float) -> tuple[float, Ints]:
        """Least cost of span k with its ends on i and j, and the placement that has it; -1 where the search ended."""
        span = self.s.spans[k]
        network, allowed = self.s.placed(k, i, j)
        price, toll = np.where(allowed, self.unit_prices(k), inf), self.toll(k, k + 1)
        at = span.key, i, j, left, price.tobytes(), toll.tobytes()
        if at not in self._known:
            known = toll if toll.any() else FREE
            value, _, device = least_time(
                network, span.unit_ptr, span.member, price, known, left, self.s.alike, inf, NODES, scratch_for(network)
            )
            self._known[at] = float(value), device
        return self._known[at]

    def column(self, k: int, i: int, j: int, device: Ints) -> Column:
        """Describe a placement of span k, with what hangs on it."""
        span = self.s.spans[k]
        own = self.p.described(k, i, j, device)
        hanging = [(m, v) for m, v in enumerate(span.operators) if v != span.entry and v in self.p.hanging]
        if not hanging:
            return own
        items, held = list(own.items), np.array(own.held)
        for m, v in hanging:
            self._add(v, int(device[m]), k + 1, items, held)
        return replace(own, items=tuple(items), held=tuple(held.tolist()))

    def of_side(self, v: int, i: int) -> Column:
        """Describe the placement of an operator beside the spans, with what hangs on it."""
        items, held = list[Item](), np.zeros(len(self.s.devices_in))
        self._alone(v, i, items, held)
        return Column(len(self.s.spans) + v, 0, 0, 0.0, tuple(items), tuple(held.tolist()))

    def _alone(self, v: int, i: int, items: list[Item], held: Floats) -> None:
        side, c = self.p.side[v], int(self.s.device_class[i])
        items.append((side.first, side.last, DEVICE, c, float(self.p.a.network.processing[v, i])))
        held[c] += self.p.resident[v]
        self._add(v, i, side.last, items, held)

    def _add(self, x: int, i: int, last: int, items: list[Item], held: Floats) -> None:
        """Add what hangs on x, which is on i."""
        for v in self.p.hanging.get(x, ()):
            j = int(self._to(v, last)[:, i].argmin())
            carried = np.zeros(len(self.s.ports_in))
            self.p.carry(j, i, float(self._seconds(self.s.parent[v][1])[j, i]), carried)
            first = self.p.side[v].first
            items += [(first, last, PORT, c, float(x)) for c, x in enumerate(carried) if x > 0.0]
            self._alone(v, j, items, held)

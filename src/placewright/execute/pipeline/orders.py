"""In which order samples pass the steps of a pipeline: one list of actions for all devices, cut into one for each."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from placewright.errors import InvalidInput

__all__ = ["Action", "Schedule", "Step", "depths", "most_in_flight", "order_of", "own_actions"]

Kind: TypeAlias = Literal["open", "forward", "backward", "settle"]
Schedule: TypeAlias = Literal["forward", "gpipe", "1f1b"]

MOST_STEPS = 2_000_000
"""Steps of all samples of one run."""

BACKWARD = 2.0
"""Seconds of a backward step for each of its forward step, as far as orders go: twice the multiplications."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a device does with a sample without waiting or sending in between.

    Attributes
    ----------
    device : int
    seconds : float
        As planned; it decides the order alone.
    after : mapping of int to float
        Steps of the same sample that come before, and the seconds that what they send is on its way.
    state : tuple of int
        Storages that outlast a sample and that this step reads or writes: samples pass it in their order.
    """

    device: int
    seconds: float
    after: Mapping[int, float] = field(default_factory=dict)
    state: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """One entry of a device's list.

    Attributes
    ----------
    kind : {"open", "forward", "backward", "settle"}
        ``open``: make room for what the sample brings. ``settle``: wait until all that the device sent of it is
        received, and forget it.
    sample : int
        Number of the micro-batch.
    step : int
        Of the sample's route; -1 for ``open`` and ``settle``.
    """

    kind: Kind
    sample: int
    step: int = -1


def order_of(
    routes: Sequence[Sequence[Step]], dealt: Sequence[int], *, schedule: Schedule = "forward", in_flight: int
) -> list[Action]:
    """Actions of all devices in one order, found by playing the pipeline through in planned times.

    - ``forward``: the oldest sample first.
    - ``gpipe``: a device runs no backward step before all its forward ones (Huang et al., arXiv 1811.06965); samples
      are not limited.
    - ``1f1b``: backward steps first; a step that lies d changes of device deep on a route of S stages, one more than
      its most changes, is at most S - d samples, and at least 1, ahead of its own backward step (PipeDream, arXiv
      1806.03377; on a chain this is the published order). What ``in_flight`` is above or below the stages of all
      routes is added to S, or limits it.

    **Nobody waits for ever.** An action is listed when it starts in that play, which is after all that it depends on
    has ended there: the steps that come before it, on the way back those that come after, the sample before it where
    it touches lasting state, and, for ``open``, the ``settle`` that made room. So the list is a linear extension of
    all dependencies, and every device takes its actions in the order of the list. Of the actions not yet done the
    first of the list can be done: its device has done all its earlier ones, whatever it awaits has been sent, and
    sending waits for nothing but a receive that was posted by an ``open`` (or by the first backward step of the
    sample) before it in the list.

    Parameters
    ----------
    routes : sequence of sequence of Step
        Of each way through the devices its steps; they only name steps before them.
    dealt : sequence of int
        Route of each sample.
    schedule : {"forward", "gpipe", "1f1b"}
    in_flight : int
        Samples that are open at a time, at most.

    Raises
    ------
    InvalidInput
        If ``in_flight`` is not at least 1, or there are more than 2,000,000 steps.

    Examples
    --------
    >>> chain = [Step(0, 1.0), Step(1, 1.0, {0: 0.0})]
    >>> order = order_of([chain], [0, 0, 0], schedule="1f1b", in_flight=2)
    >>> [(a.kind[0], a.sample) for a in own_actions([chain], [0, 0, 0], order, 0) if a.step >= 0]
    [('f', 0), ('f', 1), ('b', 0), ('f', 2), ('b', 1), ('b', 2)]
    """
    if in_flight < 1:
        raise InvalidInput(f"{in_flight} samples in flight are not at least 1")
    count = sum(len(routes[r]) for r in dealt)
    if count > MOST_STEPS:
        raise InvalidInput(f"{len(dealt)} samples make {count} steps, more than {MOST_STEPS}; run fewer at a time")
    return _Play(routes, dealt, schedule, len(dealt) if schedule == "gpipe" else in_flight).order


def own_actions(
    routes: Sequence[Sequence[Step]], dealt: Sequence[int], order: Sequence[Action], device: int
) -> list[Action]:
    """Those of the actions that are a device's, in their order."""
    passes = [any(step.device == device for step in route) for route in routes]
    return [
        action
        for action in order
        if (
            passes[dealt[action.sample]]
            if action.step < 0
            else routes[dealt[action.sample]][action.step].device == device
        )
    ]


def most_in_flight(actions: Sequence[Action]) -> int:
    """Most samples that a device has begun and not ended at a time; its memory for activations follows from it."""
    first, last = dict[int, int](), dict[int, int]()
    for k, action in enumerate(actions):
        if action.step >= 0:
            first.setdefault(action.sample, k)
            last[action.sample] = k
    changes = sorted([(k, 1) for k in first.values()] + [(k, -1) for k in last.values()], key=lambda c: (c[0], -c[1]))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def depths(steps: Sequence[Step]) -> list[int]:
    """Of each step the largest number of changes of device on a way to it."""
    depth: list[int] = []
    for step in steps:
        depth.append(max((depth[u] + (steps[u].device != step.device) for u in step.after), default=0))
    return depth


class _Play:
    """The pipeline in planned times: every device starts, of what it can start, what the schedule prefers."""

    def __init__(
        self, routes: Sequence[Sequence[Step]], dealt: Sequence[int], schedule: Schedule, in_flight: int
    ) -> None:
        self._routes, self._dealt, self._schedule, self._in_flight = routes, dealt, schedule, in_flight
        self._depths = [depths(steps) for steps in routes]
        stages = [max(row, default=0) + 1 for row in self._depths]
        more = in_flight - sum(stages)
        self._room = [count + more if more >= 0 else min(count, in_flight) for count in stages]
        self._behind = [_followers(steps) for steps in routes]
        self._waits: dict[Action, int] = {}
        self._ready_s: dict[Action, float] = {}
        self._followers: dict[Action, list[Action]] = {}
        self._left: dict[int, int] = {}
        self._last_state: dict[tuple[int, int], Action] = {}
        self._of_route: dict[int, list[int]] = {}
        self._done: set[Action] = set()
        self._ready: dict[int, list[tuple[int, int, int, Action]]] = {}
        self._forwards_left: dict[int, int] = {}
        for route in dealt:
            for step in routes[route]:
                self._forwards_left[step.device] = self._forwards_left.get(step.device, 0) + 1
        self._busy: set[int] = set()
        self._events: list[tuple[float, int, bool, Action]] = []
        self._count = 0
        self._next = 0
        self.order: list[Action] = []
        self._admit(0.0)
        self._begin(0.0)
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] <= now:
                _, _, ended, action = heapq.heappop(self._events)
                if ended:
                    self._end(action, now)
                else:
                    self._offer(action)
            self._begin(now)

    def _admit(self, now: float) -> None:
        """Open the next samples as far as there is room."""
        while self._next < len(self._dealt) and len(self._left) < self._in_flight:
            sample, route = self._next, self._dealt[self._next]
            self._next += 1
            steps = self._routes[route]
            training = self._schedule != "forward"
            self._left[sample] = len(steps) * (2 if training else 1)
            self.order.append(Action("open", sample))
            earlier = self._of_route.setdefault(route, [])
            fresh = []
            for k, step in enumerate(steps):
                action = Action("forward", sample, k)
                before = [Action("forward", sample, u) for u in step.after]
                for storage in step.state:
                    if (step.device, storage) in self._last_state:
                        before.append(self._last_state[step.device, storage])
                    self._last_state[step.device, storage] = action
                ahead = max(1, self._room[route] - self._depths[route][k])
                if self._schedule == "1f1b" and len(earlier) >= ahead:
                    before.append(Action("backward", earlier[-ahead], k))
                fresh.append((action, before))
                if training:
                    behind = [Action("backward", sample, w) for w in self._behind[route][k]]
                    fresh.append((Action("backward", sample, k), [action, *behind]))
            earlier.append(sample)
            for action, before in fresh:
                open_ = [u for u in dict.fromkeys(before) if u not in self._done]
                self._waits[action] = len(open_)
                for u in open_:
                    self._followers.setdefault(u, []).append(action)
                if not open_:
                    self._push(now, False, action)

    def _push(self, at: float, ended: bool, action: Action) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, ended, action))

    def _offer(self, action: Action) -> None:
        """Put an action among those that its device can start."""
        backward = action.kind == "backward"
        rank = int(backward) if self._schedule == "gpipe" else int(not backward)
        heap = self._ready.setdefault(self._step(action).device, [])
        heapq.heappush(heap, (rank, action.sample, -action.step if backward else action.step, action))

    def _begin(self, now: float) -> None:
        for device, heap in sorted(self._ready.items()):
            if device in self._busy or not heap:
                continue
            if self._schedule == "gpipe" and heap[0][3].kind == "backward" and self._forwards_left[device]:
                continue
            action = heapq.heappop(heap)[3]
            self._busy.add(device)
            self.order.append(action)
            seconds = self._step(action).seconds * (BACKWARD if action.kind == "backward" else 1.0)
            self._push(now + seconds, True, action)

    def _end(self, action: Action, now: float) -> None:
        step = self._step(action)
        self._busy.discard(step.device)
        self._done.add(action)
        if action.kind == "forward":
            self._forwards_left[step.device] -= 1
        for follower in self._followers.pop(action, ()):
            at = max(now + self._travel(action, follower), self._ready_s.pop(follower, 0.0))
            self._waits[follower] -= 1
            if self._waits[follower]:
                self._ready_s[follower] = at
            else:
                del self._waits[follower]
                self._push(at, False, follower)
        self._left[action.sample] -= 1
        if not self._left[action.sample]:
            del self._left[action.sample]
            self.order.append(Action("settle", action.sample))
            self._admit(now)

    def _travel(self, action: Action, follower: Action) -> float:
        if action.sample != follower.sample:
            return 0.0
        steps = self._routes[self._dealt[action.sample]]
        if action.kind == "forward":
            return steps[follower.step].after.get(action.step, 0.0)
        return steps[action.step].after.get(follower.step, 0.0)

    def _step(self, action: Action) -> Step:
        return self._routes[self._dealt[action.sample]][action.step]


def _followers(steps: Sequence[Step]) -> list[list[int]]:
    behind: list[list[int]] = [[] for _ in steps]
    for k, step in enumerate(steps):
        for u in step.after:
            behind[u].append(k)
    return behind

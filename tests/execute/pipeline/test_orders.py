"""Orders of pipelines: published ones on chains, and on any graph of steps all dependencies, limits and an end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.errors import InvalidInput
from placewright.execute.pipeline import orders as schedule_orders
from placewright.execute.pipeline.orders import Action, Schedule, Step, depths, most_in_flight, order_of, own_actions
from placewright.execute.pipeline.routes import dealt_to


def chain(stages: int) -> list[Step]:
    return [Step(k, 1.0, {k - 1: 0.0} if k else {}) for k in range(stages)]


@st.composite
def routes(draw: st.DrawFn) -> list[list[Step]]:
    """One to three routes over up to four devices; each step comes after the one before it on its device."""
    devices = draw(st.integers(1, 4))
    made = []
    for _ in range(draw(st.integers(1, 3))):
        steps: list[Step] = []
        for k in range(draw(st.integers(1, 7))):
            device = draw(st.integers(0, devices - 1))
            after = dict.fromkeys(draw(st.sets(st.integers(0, k - 1), max_size=3)) if k else (), 0.5)
            before = next((u for u in reversed(range(k)) if steps[u].device == device), None)
            if before is not None:
                after[before] = 0.0
            state = (0,) if draw(st.booleans()) else ()
            steps.append(Step(device, draw(st.sampled_from([0.0, 1.0, 3.0])), after, state))
        made.append(steps)
    return made


def before(made: Sequence[Sequence[Step]], dealt: Sequence[int], action: Action) -> list[Action]:
    """What the data of a step need: earlier steps, on the way back the step itself and the later ones."""
    steps = made[dealt[action.sample]]
    if action.kind == "forward":
        return [Action("forward", action.sample, u) for u in steps[action.step].after]
    behind = [w for w, step in enumerate(steps) if action.step in step.after]
    return [Action("forward", action.sample, action.step), *(Action("backward", action.sample, w) for w in behind)]


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("samples", [1, 2, 4, 9])
def test_1f1b_on_a_chain_is_the_published_order(stages: int, samples: int) -> None:
    """Stage s of S: min(N, S - s) forward steps, then backward and forward in turn, then the backward steps left."""
    made, dealt = [chain(stages)], [0] * samples
    order = order_of(made, dealt, schedule="1f1b", in_flight=stages)
    for s in range(stages):
        warm = min(samples, stages - s)
        expected = [("forward", m) for m in range(warm)]
        for m in range(samples):
            expected.append(("backward", m))
            if warm + m < samples:
                expected.append(("forward", warm + m))
        own = own_actions(made, dealt, order, s)
        assert [(a.kind, a.sample) for a in own if a.step >= 0] == expected
        assert most_in_flight(own) == warm


def test_gpipe_on_a_chain_is_the_published_order() -> None:
    """Every stage: all forward steps, then all backward ones; all samples are open at once."""
    made, dealt = [chain(3)], [0] * 4
    order = order_of(made, dealt, schedule="gpipe", in_flight=1)
    for s in range(3):
        own = own_actions(made, dealt, order, s)
        kinds = [a.kind for a in own if a.step >= 0]
        assert kinds == ["forward"] * 4 + ["backward"] * 4
        assert most_in_flight(own) == 4


@given(routes(), st.integers(1, 7), st.sampled_from(["forward", "gpipe", "1f1b"]), st.integers(1, 5), st.data())
@settings(max_examples=150)
def test_every_order_keeps_all_dependencies_and_limits(
    made: list[list[Step]], samples: int, schedule: Schedule, in_flight: int, data: st.DataObject
) -> None:
    """Each step of each sample once, after all that it needs, in a window of samples; lasting state in their order."""
    dealt = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=samples, max_size=samples))
    order = order_of(made, dealt, schedule=schedule, in_flight=in_flight)
    at = {action: k for k, action in enumerate(order)}
    kinds = ["forward"] if schedule == "forward" else ["forward", "backward"]
    assert len(at) == len(order) == sum(2 + len(kinds) * len(made[r]) for r in dealt)
    open_, touched = 0, dict[int, int]()
    for k, action in enumerate(order):
        open_ += (action.kind == "open") - (action.kind == "settle")
        assert open_ <= (samples if schedule == "gpipe" else in_flight)
        if action.step < 0:
            continue
        assert at[Action("open", action.sample)] < k < at[Action("settle", action.sample)]
        assert all(at[u] < k for u in before(made, dealt, action))
        step = made[dealt[action.sample]][action.step]
        if step.state and action.kind == "forward":
            assert touched.get(step.device, 0) <= action.sample
            touched[step.device] = action.sample
    if schedule == "1f1b":
        for r, steps in enumerate(made):
            mine = [m for m in range(samples) if dealt[m] == r]
            stages, total = max(depths(steps)) + 1, sum(max(depths(row)) + 1 for row in made)
            room = min(stages, in_flight) if in_flight < total else stages + in_flight - total
            for k, depth in enumerate(depths(steps)):
                for n, m in enumerate(mine):
                    behind = n - max(1, room - depth)
                    assert behind < 0 or at[Action("backward", mine[behind], k)] < at[Action("forward", m, k)]


@given(routes(), st.integers(1, 6), st.sampled_from(["forward", "gpipe", "1f1b"]), st.integers(1, 4))
@settings(max_examples=100)
def test_devices_that_only_know_their_own_lists_come_to_their_ends(
    made: list[list[Step]], samples: int, schedule: Schedule, in_flight: int
) -> None:
    """Each waits for what it awaits, and, before it forgets a sample, for its receivers: nobody waits for ever."""
    dealt = dealt_to([1 / len(made)] * len(made), samples)
    order = order_of(made, dealt, schedule=schedule, in_flight=in_flight)
    devices = sorted({step.device for steps in made for step in steps})
    lists = {i: own_actions(made, dealt, order, i) for i in devices}
    at, done, opened = dict.fromkeys(devices, 0), set[Action](), set[tuple[int, int]]()

    def can(device: int, action: Action) -> bool:
        if action.kind == "open":
            return True
        steps = made[dealt[action.sample]]
        if action.step >= 0:
            return all(u in done for u in before(made, dealt, action))
        # What was sent forward is received where the sample is open, what was sent back where its way back has begun.
        readers = {s.device for s in steps if any(steps[u].device == device for u in s.after)}
        senders = {steps[u].device for s in steps if s.device == device for u in s.after} - {device}
        back = schedule == "forward" or all(
            any(Action("backward", action.sample, k) in done for k, s in enumerate(steps) if s.device == i)
            for i in senders
        )
        return back and all((i, action.sample) in opened for i in readers)

    moved = True
    while moved:
        moved = False
        for i in devices:
            while at[i] < len(lists[i]) and can(i, lists[i][at[i]]):
                action = lists[i][at[i]]
                done.add(action)
                if action.kind == "open":
                    opened.add((i, action.sample))
                at[i] += 1
                moved = True
    assert all(at[i] == len(lists[i]) for i in devices)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 60))
def test_samples_are_dealt_by_share(parts: list[int], count: int) -> None:
    """After every sample a route has had less than one more than its share, and all together have had all."""
    shares = [p / sum(parts) for p in parts]
    dealt = dealt_to(shares, count)
    assert len(dealt) == count
    for m in range(1, count + 1):
        for k, share in enumerate(shares):
            had = dealt[:m].count(k)
            assert share * m - (len(shares) - 1) - 1e-9 <= had <= share * m + 1 + 1e-9


def test_at_least_one_sample_is_in_flight() -> None:
    """With none nothing would ever begin."""
    with pytest.raises(InvalidInput, match="0 samples in flight are not at least 1"):
        order_of([chain(2)], [0], in_flight=0)


def test_more_steps_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are laid out."""
    monkeypatch.setattr(schedule_orders, "MOST_STEPS", 9)
    assert order_of([chain(3)], [0] * 3, in_flight=1)
    with pytest.raises(InvalidInput, match="4 samples make 12 steps, more than 9; run fewer at a time"):
        order_of([chain(3)], [0] * 4, in_flight=1)

"""The line before an engine: first come, first served, and no longer than it may be."""

from __future__ import annotations

import asyncio

import pytest

from placewright.execute.serve.line import Full, Line


def test_who_comes_first_is_served_first_and_the_last_is_sent_away() -> None:
    """Two at once and two waiting: the fifth is sent away; places are handed on in order."""

    async def play() -> list[str]:
        line, log = Line(2, 2), []

        async def visit(name: str, leave: asyncio.Event) -> None:
            await line.enter()
            log.append(f"{name} in")
            await leave.wait()
            line.leave(1.0)

        doors = {name: asyncio.Event() for name in "abcd"}
        visits = [asyncio.create_task(visit(name, door)) for name, door in doors.items()]
        await asyncio.sleep(0)
        assert (line.under_way, line.waiting) == (2, 2)
        with pytest.raises(Full):
            await line.enter()
        for name in "bacd":
            doors[name].set()
            for _ in range(3):
                await asyncio.sleep(0)
        await asyncio.gather(*visits)
        assert (line.under_way, line.waiting) == (0, 0)
        return log

    assert asyncio.run(play()) == ["a in", "b in", "c in", "d in"]


def test_who_gives_up_leaves_the_line_and_takes_no_place() -> None:
    """One that is cancelled while it waits, and one in the very moment in which it is called up."""

    async def play() -> None:
        line = Line(1, 5)
        await line.enter()
        first, second, third = (asyncio.create_task(line.enter()) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        assert line.waiting == 2
        line.leave()  # calls up the second ...
        second.cancel()  # ... which has gone before it could come
        await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.wait_for(third, 5)
        assert (line.under_way, line.waiting) == (1, 0)
        line.leave()
        assert line.under_way == 0

    asyncio.run(play())


def test_a_place_that_is_free_as_one_gives_up_goes_to_the_next() -> None:
    """The first is cancelled and, before it can take itself out of the line, passed over: no place, and no error."""

    async def play() -> None:
        line = Line(1, 5)
        await line.enter()
        first, second = (asyncio.create_task(line.enter()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        line.leave()
        told = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(told[0], asyncio.CancelledError) and told[1] is None
        assert (line.under_way, line.waiting) == (1, 0)

    asyncio.run(play())


def test_when_to_come_back_follows_from_how_long_the_last_ones_took() -> None:
    """4 s each, two at once, two waiting and one's own: 4 x (2 + 2) / 2 / 2 = 4 s; unknown, a second."""

    async def play() -> None:
        line = Line(2, 2)
        assert line.retry_after_s() == 1
        for _ in range(2):
            await line.enter()
        waiting = [asyncio.create_task(line.enter()) for _ in range(2)]
        await asyncio.sleep(0)
        line._took.extend([3.0, 5.0])
        with pytest.raises(Full, match="try again in 4 s") as full:
            await line.enter()
        assert full.value.retry_after_s == 4
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(play())

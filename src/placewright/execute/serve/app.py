"""A plan over HTTP: requests are read within bounds, stand in line, run, and are answered or told why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from placewright.errors import ExecutionError, InvalidInput
from placewright.execute.generate.generation import Generation
from placewright.execute.serve.answers import LARGEST_TEXT, Continuation, Texts, continuation_of, event
from placewright.execute.serve.engine import Engine
from placewright.execute.serve.line import Full, Line
from placewright.execute.serve.messages import Arrays
from placewright.execute.serve.metrics import Metrics
from placewright.execute.serve.tensors import NPZ, from_json, from_npz, largest_body, to_json, to_npz

__all__ = ["Settings", "make_app"]

WATCH_S = 0.25
"""How often the engine is asked whether it lives."""

CONVERTERS = 2
"""Threads that read bodies and write outputs, meanwhile others are answered; more would only want more memory."""

GONE = 499
"""Counted, heard by nobody: whoever asked has left before the end of the answer."""


@dataclass(frozen=True)
class Settings:
    """What a server is told.

    Attributes
    ----------
    timeout_s : float
        Longest from a request's arrival to its answer.
    queue : int
        Requests that wait beside those under way.
    at_once : int
        Requests under way.
    plan_json : bytes
        What ``GET /plan`` answers.
    """

    timeout_s: float
    queue: int
    at_once: int
    plan_json: bytes = b"{}"


ENDED = "the server was told to end before this was answered"

P = ParamSpec("P")
T = TypeVar("T")


class _Refused(Exception):
    """A request gets an answer other than 200."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}


def make_app(
    engine: Engine, settings: Settings, texts: Texts | None = None, on_failure: Callable[[], None] | None = None
) -> Starlette:
    """Make the application.

    Parameters
    ----------
    engine : Engine
    settings : Settings
    texts : Texts, optional
        Where prompts may be text.
    on_failure : callable, optional
        Called once the engine has failed, when whoever stood in line has been told.
    """
    server = _Server(engine, settings, texts, on_failure)
    routes = [
        Route("/health", server.health, methods=["GET"]),
        Route("/metrics", server.figures, methods=["GET"]),
        Route("/plan", server.plan, methods=["GET"]),
    ]
    if engine.decoder is None:
        routes.append(Route("/v1/run", server.answered("run", server.run), methods=["POST"]))
    else:
        routes.append(Route("/v1/generate", server.answered("generate", server.generate), methods=["POST"]))
    return Starlette(routes=routes, lifespan=server.watching)


class _Server:
    def __init__(
        self, engine: Engine, settings: Settings, texts: Texts | None, on_failure: Callable[[], None] | None
    ) -> None:
        self._engine, self._settings, self._texts, self._on_failure = engine, settings, texts, on_failure
        self._line = Line(settings.at_once, settings.queue)
        self._threads = ThreadPoolExecutor(settings.at_once)
        self._converters = ThreadPoolExecutor(CONVERTERS)
        self._metrics = Metrics(
            lambda: float(self._line.waiting), lambda: float(self._line.under_way), lambda: float(not engine.failure)
        )

    @asynccontextmanager
    async def watching(self, app: Starlette) -> AsyncIterator[None]:
        """Look after the engine for as long as the application lives."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            for threads in (self._threads, self._converters):
                threads.shutdown(wait=False, cancel_futures=True)

    async def _watch(self) -> None:
        while not self._engine.failure:
            await asyncio.sleep(WATCH_S)
            self._engine.watch(self._settings.timeout_s)
        if self._on_failure is not None:
            self._on_failure()

    async def health(self, request: Request) -> Response:
        """Tell whether the plan can be run."""
        failure = self._engine.failure
        content = {"status": failure or "ok", "devices": list(self._engine.devices), "waiting": self._line.waiting}
        return _json(content, 503 if failure else 200)

    async def figures(self, request: Request) -> Response:
        """Tell what has been counted."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def plan(self, request: Request) -> Response:
        """Show the plan that runs."""
        return Response(self._settings.plan_json, media_type="application/json")

    def answered(
        self, name: str, handle: Callable[[Request, float], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Turn what a request may end with into answers, and count them."""

        async def endpoint(request: Request) -> Response:
            began = time.monotonic()
            try:
                if self._engine.failure:
                    raise ExecutionError(self._engine.failure)
                response = await handle(request, began + self._settings.timeout_s)
                if isinstance(response, _Stream):  # what it ends with is not known yet
                    response.on_end = lambda status: self._count(name, status, began)
                    return response
            except _Refused as refused:
                response = _error(refused.status, refused.detail, refused.headers)
            except InvalidInput as error:
                response = _error(400, str(error))
            except Full as full:
                response = _error(429, str(full), {"Retry-After": str(full.retry_after_s)})
            except TimeoutError:
                response = _error(
                    504, f"no answer within {self._settings.timeout_s:g} s; give more time with --timeout"
                )
            except ExecutionError as error:
                response = _error(503, str(error))
            except ClientDisconnect:
                response = _error(GONE, "whoever asked has left")
            except asyncio.CancelledError:  # by the server, which has waited for long enough
                response = _error(503, ENDED)
            self._count(name, response.status_code, began)
            return response

        return endpoint

    def _count(self, name: str, status: int, began: float) -> None:
        self._metrics.requests.labels(name, str(status)).inc()
        if status == 200:
            self._metrics.seconds.labels(name).observe(time.monotonic() - began)

    async def _converted(self, convert: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Do what may take long in a thread: on the event loop others would wait for it."""
        work = partial(convert, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._converters, work)

    async def run(self, request: Request, until: float) -> Response:
        """Run one sample."""
        inputs = self._engine.inputs
        is_npz = request.headers.get("content-type", "").partition(";")[0].strip() == NPZ
        body = await _body(request, largest_body(inputs), until)
        convert = from_npz if is_npz else from_json
        outputs = await _while_there(request, self._outputs(partial(convert, body, inputs), until))
        if is_npz or NPZ in request.headers.get("accept", ""):
            return Response(await self._converted(to_npz, outputs), media_type=NPZ)
        return Response(await self._converted(to_json, outputs), media_type="application/json")

    async def _outputs(self, read: Callable[[], Arrays], until: float) -> Arrays:
        async with asyncio.timeout_at(_loop_time(until)):
            given = await self._converted(read)
            await self._line.enter()
            began = time.monotonic()
            try:
                future = self._engine.run(given)
            except BaseException:
                self._line.leave()
                raise
            # Whoever waits may give up; the place is free when the engine is done with the sample.
            loop = asyncio.get_running_loop()
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._line.leave, time.monotonic() - began))
            asked = asyncio.wrap_future(future)
            asked.add_done_callback(lambda f: f.cancelled() or f.exception())  # told, or nobody is there to be told
            return await asyncio.shield(asked)

    async def generate(self, request: Request, until: float) -> Response:
        """Continue prompts."""
        body = await _body(request, LARGEST_TEXT, until)
        return await _while_there(request, self._continued(body, until))

    async def _continued(self, body: bytes, until: float) -> Response:
        assert self._engine.decoder is not None
        async with asyncio.timeout_at(_loop_time(until)):
            wanted = await self._converted(continuation_of, body, self._engine.decoder, self._texts)
            await self._line.enter()
        loop, began = asyncio.get_running_loop(), time.monotonic()
        told: asyncio.Queue[list[int | None] | None] = asyncio.Queue()
        going = Continuation(
            self._engine, wanted, until, lambda tokens: loop.call_soon_threadsafe(told.put_nowait, tokens)
        )
        work = loop.run_in_executor(self._threads, going.run)

        def ended(task: asyncio.Future[Generation]) -> None:
            told.put_nowait(None)
            self._line.leave(time.monotonic() - began)
            if not task.cancelled() and task.exception() is None:
                self._metrics.tokens.inc(sum(map(len, task.result().tokens)))

        work.add_done_callback(ended)
        if not wanted.stream:
            try:
                return _json(going.answer(await asyncio.shield(work), self._texts))
            finally:
                going.stop()
        return _Stream(going, work, told, self._settings.timeout_s, self._texts)


class _Stream(StreamingResponse):
    """Tells of each token as it comes, then of all, or why there is no more; ``on_end`` is told how it went."""

    def __init__(
        self,
        going: Continuation,
        work: asyncio.Future[Generation],
        told: asyncio.Queue[list[int | None] | None],
        timeout_s: float,
        texts: Texts | None,
    ) -> None:
        super().__init__(self._events(), media_type="text/event-stream")
        self._going, self._work, self._told, self._timeout_s, self._texts = going, work, told, timeout_s, texts
        self._ended_with = GONE
        self.on_end: Callable[[int], None] = lambda status: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; also where nobody waits for it any more, no further step is taken and its end is told."""
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # by the server, which has waited for long enough
            self._ended_with = 503
            await send({"type": "http.response.body", "body": event({"error": ENDED}), "more_body": False})
        finally:
            self._going.stop()
            self.on_end(self._ended_with)

    async def _events(self) -> AsyncIterator[bytes]:
        while (tokens := await self._told.get()) is not None:
            yield event({"token_ids": tokens})
        try:
            last, status = self._going.answer(await self._work, self._texts), 200
        except TimeoutError:
            last, status = {"error": f"no answer within {self._timeout_s:g} s"}, 504
        except ExecutionError as error:
            last, status = {"error": str(error)}, 503
        self._ended_with = status
        yield event(last)


async def _while_there(request: Request, answering: Coroutine[Any, Any, T]) -> T:
    """Go on for as long as whoever asked, and whose request has been read, is there to be answered.

    Raises
    ------
    ClientDisconnect
        When that one leaves.
    """
    answer, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return await answer
    finally:
        answer.cancel()
        leaving.cancel()


async def _body(request: Request, limit: int, until: float) -> bytes:
    """Read a request's body, and no more of it than it may have."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _Refused(413, f"the body has {declared[:20]} B, more than the {limit} B that a request may have")
    pieces: list[bytes] = []
    size = 0
    async with asyncio.timeout_at(_loop_time(until)):
        async for piece in request.stream():
            size += len(piece)
            if size > limit:
                raise _Refused(413, f"the body has more than the {limit} B that a request may have")
            pieces.append(piece)
    return b"".join(pieces)


def _loop_time(until: float) -> float:
    """Turn a time of ``time.monotonic`` into one of the event loop."""
    return asyncio.get_running_loop().time() + until - time.monotonic()


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content) + b"\n", status, media_type="application/json")


def _error(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode({"error": detail}) + b"\n", status, headers, media_type="application/json")

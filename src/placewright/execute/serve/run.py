"""Serve a plan until it is told to stop: what runs it is started, the endpoint opened, and both ended together."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from placewright.errors import ExecutionError, InvalidInput, MissingExtra
from placewright.evaluate import judge
from placewright.execute.checks import check_single, check_timeout
from placewright.execute.generate.run import decoder_job
from placewright.execute.network import check_hash, find_model
from placewright.execute.onnx.runner import OnnxRunner
from placewright.execute.serve.engine import Engine, OnnxEngine, RankEngine
from placewright.execute.serve.group import ResidentGroup
from placewright.execute.serve.messages import ResidentJob
from placewright.io import PlanFile, read_plan, result_to_json

if TYPE_CHECKING:
    from placewright.execute.serve.answers import Texts

__all__ = ["Address", "serve_plan"]

ENDING_S = 10
"""Whole seconds that requests under way have to end in when the server is told to."""

MOST_WAITING = 100_000

HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
"""What comes when the terminal closes; the server's own library leaves it alone."""


@dataclass(frozen=True)
class Address:
    """Where a server listens, and for how many.

    Attributes
    ----------
    host : str
    port : int
        0: one that is free.
    queue : int
        Requests that wait beside those under way.
    at_once : int or None
        Requests under way; by default what keeps all devices busy.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    queue: int = 32
    at_once: int | None = None


def serve_plan(
    plan_path: Path,
    address: Address,
    *,
    model: str | None = None,
    weights: str | None = None,
    generate: bool = False,
    texts: Texts | None = None,
    timeout_s: float = 60.0,
    on_progress: Callable[[str], None] | None = None,
) -> None:
    """Keep what runs a plan up and answer requests over HTTP until SIGINT or SIGTERM.

    Parameters
    ----------
    plan_path : Path
    address : Address
    model, weights : str, optional
        As :func:`placewright.execute.dispatch.run_plan` takes them, or with ``generate``
        :func:`~placewright.execute.generate.run.generate_plan`.
    generate : bool
        Whether the network is a decoder that continues prompts.
    texts : Texts, optional
        Where prompts may be text.
    timeout_s : float
        Longest from a request's arrival to its answer.

    Raises
    ------
    InvalidInput
        If the plan, the model or the address can't be used.
    ExecutionError
        If what runs the plan fails: requests are then answered 503, and the server ends.
    """
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as absent:
        raise MissingExtra(absent.name or "starlette", "serve", "serving a plan") from None
    check_timeout(timeout_s)
    if not 0 <= address.queue <= MOST_WAITING:
        raise InvalidInput(f"--queue {address.queue} is not 0 to {MOST_WAITING}")
    file = read_plan(plan_path)
    check_single(file.plan)
    tell = on_progress or (lambda line: None)
    with (
        _ended_by(_interrupt, signal.SIGTERM, *HANGUP),
        _listening(address) as listener,
        _started(file, plan_path, model, weights, generate, timeout_s, tell) as engine,
    ):
        _answer(engine, file, listener, address, texts, timeout_s, tell)
        failure = engine.failure
    if failure:
        raise ExecutionError(failure)


def _answer(
    engine: Engine,
    file: PlanFile,
    listener: socket.socket,
    address: Address,
    texts: Texts | None,
    timeout_s: float,
    tell: Callable[[str], None],
) -> None:
    """Answer requests until a signal comes or the engine fails."""
    import uvicorn

    from placewright.execute.serve.app import Settings, make_app

    shown = result_to_json(file.problem, file.result, judge(file.problem, file.plan))
    settings = Settings(timeout_s, address.queue, address.at_once or engine.at_once, msgspec.json.encode(shown))
    servers: list[uvicorn.Server] = []

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    app = make_app(engine, settings, texts, on_failure=stop)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=ENDING_S)
    servers.append(uvicorn.Server(config))
    listener.listen(socket.SOMAXCONN)  # from here on whoever comes is kept waiting, not turned away
    host, port = listener.getsockname()[:2]
    tell(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    with (
        contextlib.suppress(KeyboardInterrupt),  # the signal that ended it, raised again
        _ended_by(stop, *HANGUP),
    ):
        asyncio.run(servers[0].serve(sockets=[listener]))


@contextlib.contextmanager
def _started(
    file: PlanFile,
    plan_path: Path,
    model: str | None,
    weights: str | None,
    generate: bool,
    timeout_s: float,
    tell: Callable[[str], None],
) -> Iterator[Engine]:
    """Start what runs the plan, and end it."""
    if generate:
        job = decoder_job(file, plan_path, model, weights, timeout_s)
    else:
        location = model if model is not None else str(find_model(file.problem, plan_path.parent))
        if not location.startswith("py:") and not location.endswith(".pt2"):
            if weights is not None:
                raise InvalidInput("--weights is for PyTorch networks; an ONNX file has its own")
            check_hash(file.problem, Path(location))
            tell(f"starting a worker for each device in use ({len(file.plan.devices_used)})")
            with OnnxRunner(location, file.problem, file.plan, timeout_s=timeout_s) as runner:
                engine = OnnxEngine(runner)
                try:
                    yield engine
                finally:
                    engine.close()
            return
        job = ResidentJob(str(plan_path), location, weights, timeout_s, generate=False)
    tell(f"starting a process for each device in use ({len(file.plan.devices_used)})")
    with ResidentGroup(file.problem, file.plan, job) as group:
        yield RankEngine(group)


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    """Take the port before anything is loaded."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"can't listen on {address.host!r}, port {address.port}: {getattr(error, 'strerror', None) or error}; "
            "give another --host or --port (0: any that is free)"
        ) from None
    with listener:
        yield listener


@contextlib.contextmanager
def _ended_by(end: Callable[[], None], *numbers: signal.Signals) -> Iterator[None]:
    """Let signals end what runs, but for those that are ignored, as ``nohup`` has it of one."""
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, lambda *_: end())
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def _interrupt() -> None:
    """Do what Ctrl-C does."""
    raise KeyboardInterrupt

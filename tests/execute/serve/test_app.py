"""The endpoint over an engine that is none: every answer that a request may get."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient

from placewright.errors import ExecutionError
from placewright.execute.serve.app import Settings, make_app
from placewright.execute.serve.messages import Arrays, Decoder, TensorSpec
from placewright.execute.serve.tensors import NPZ, from_npz, to_npz

SAMPLE = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}]}


class FakeEngine:
    """Doubles its input, and counts tokens on; while ``held`` nothing is answered."""

    devices = ("left", "right")
    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "float32", (2,)),)
    decoder: Decoder | None = None
    at_once = 1

    def __init__(self) -> None:
        self.failure = ""
        self.held = False
        self.pending: list[Callable[[], None]] = []
        self.forgotten: list[int] = []
        self.steps = 0

    def _answer(self, content: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.failure:
            future.set_exception(ExecutionError(self.failure))
        elif self.held:
            self.pending.append(lambda: future.set_result(content))
        else:
            future.set_result(content)
        return future

    def release(self) -> None:
        self.held = False
        while self.pending:
            self.pending.pop(0)()

    def run(self, inputs: Arrays) -> Future[Arrays]:
        return self._answer({"output0": 2 * inputs["x"]})

    def new_stream(self) -> int:
        return 7

    def step(self, stream: int, rows: Sequence[Sequence[int]], pads: Sequence[int]) -> Future[tuple[int, ...]]:
        self.steps += 1
        return self._answer(tuple(row[-1] + 1 for row in rows))

    def forget(self, stream: int) -> None:
        self.forgotten.append(stream)

    def watch(self, longest_s: float) -> None:
        pass


class FakeDecoder(FakeEngine):
    inputs = ()
    decoder = Decoder(vocabulary=100, ends=(9,), longest=50)


class Letters:
    """A token for each letter."""

    def tokens(self, text: str) -> list[int]:
        return [ord(c) - 96 for c in text]

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(chr(96 + t) for t in tokens)


@contextmanager
def served(engine: FakeEngine, **changes: Any) -> Iterator[TestClient]:
    texts, stopped = changes.pop("texts", None), changes.pop("on_failure", None)
    settings = Settings(**{"timeout_s": 30.0, "queue": 2, "at_once": 1, "plan_json": b'{"plan": 1}', **changes})
    with TestClient(make_app(engine, settings, texts, stopped)) as client:
        yield client


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does, for ten seconds at most."""
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_sample_is_run_in_both_forms_and_counted() -> None:
    """JSON in, JSON out; .npz in, .npz out; .npz where it is asked for; the figures count three."""
    with served(FakeEngine()) as client:
        made = client.post("/v1/run", json=SAMPLE)
        assert made.status_code == 200
        assert made.json() == {"outputs": [{"name": "output0", "shape": [2], "datatype": "FP32", "data": [2.0, 4.0]}]}
        array = np.array([1.0, 2.0], np.float32)
        packed = client.post("/v1/run", content=to_npz({"x": array}), headers={"Content-Type": NPZ})
        asked = client.post("/v1/run", json=SAMPLE, headers={"Accept": NPZ})
        for response in (packed, asked):
            assert response.headers["content-type"] == NPZ
            output = from_npz(response.content, [TensorSpec("output0", "float32", (2,))])["output0"]
            assert output.tolist() == [2.0, 4.0]
        text = client.get("/metrics").text
        assert 'placewright_requests_total{endpoint="run",status="200"} 3.0' in text
        assert "placewright_up 1.0" in text and "placewright_under_way 0.0" in text
        assert client.get("/plan").json() == {"plan": 1}
        assert client.get("/health").json() == {"status": "ok", "devices": ["left", "right"], "waiting": 0}
        assert client.post("/v1/generate", json={}).status_code == 404


def test_what_is_no_sample_is_refused_and_what_is_too_large_is_not_read() -> None:
    """400 with the reason; 413 by the length that is declared, and by what comes where none is."""
    with served(FakeEngine()) as client:
        wrong = client.post("/v1/run", json={"inputs": []})
        assert (wrong.status_code, wrong.json()) == (400, {"error": "input 'x' is not given; give it by that name"})
        assert client.post("/v1/run", content=b"x" * 200_000).status_code == 413
        pieces = client.post("/v1/run", content=(b"x" * 10_000 for _ in range(20)))
        assert pieces.status_code == 413
        assert client.post("/v1/run", content=b"x", headers={"Content-Type": NPZ}).status_code == 400
        assert client.get("/v1/run").status_code == 405


def test_a_full_line_sends_away_and_says_when_to_come_back() -> None:
    """One under way and one waiting: the third gets 429 at once; the two are answered when the engine is."""
    engine = FakeEngine()
    engine.held = True
    with served(engine, queue=1) as client:
        answers: list[int] = []
        threads = []
        for k in range(2):
            thread = threading.Thread(target=lambda: answers.append(client.post("/v1/run", json=SAMPLE).status_code))
            thread.start()
            threads.append(thread)
            until(lambda k=k: len(engine.pending) == 1 and client.get("/health").json()["waiting"] == k)
        away = client.post("/v1/run", json=SAMPLE)
        assert away.status_code == 429 and int(away.headers["Retry-After"]) >= 1
        engine.release()
        for thread in threads:
            thread.join(10)
        assert answers == [200, 200]


def test_a_request_that_takes_too_long_is_told_and_its_place_is_kept_until_the_engine_is_done() -> None:
    """504 for the one under way and for the one that waits behind it; later ones are served."""
    engine = FakeEngine()
    engine.held = True
    with served(engine, timeout_s=0.05) as client:
        for _ in range(2):
            late = client.post("/v1/run", json=SAMPLE)
            assert late.status_code == 504 and "--timeout" in late.json()["error"]
        assert len(engine.pending) == 1
        engine.release()
    with served(engine) as client:
        assert client.post("/v1/run", json=SAMPLE).status_code == 200


def test_an_engine_that_fails_answers_503_and_ends_the_server() -> None:
    """The reason is told in every answer, and whoever runs the server is called."""
    engine, ended = FakeEngine(), threading.Event()
    with served(engine, on_failure=ended.set) as client:
        engine.failure = "device 'left' was killed"
        down = client.post("/v1/run", json=SAMPLE)
        assert (down.status_code, down.json()) == (503, {"error": "device 'left' was killed"})
        health = client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "device 'left' was killed")
        assert "placewright_up 0.0" in client.get("/metrics").text
        assert ended.wait(10)


def test_prompts_are_continued_as_tokens_as_text_and_as_a_stream() -> None:
    """It counts on to 9, which ends a text: row 0 after two tokens, row 1 after the three that it may have."""
    engine = FakeDecoder()
    with served(engine, texts=Letters()) as client:
        made = client.post("/v1/generate", json={"prompt_ids": [[6, 7], [20]], "max_tokens": 3}).json()
        assert made["token_ids"] == [[8, 9], [21, 22, 23]]
        assert made["finish"] == ["stop", "length"] and made["texts"] == ["hi", "uvw"]
        text = client.post("/v1/generate", json={"prompt": "a", "max_tokens": 2, "stop_ids": []}).json()
        assert text["token_ids"] == [[2, 3]] and text["texts"] == ["bc"]
        lines = client.post("/v1/generate", json={"prompt_ids": [[6]], "stream": True}).text.split("\n\n")
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
        assert [e["token_ids"] for e in events] == [[7], [8], [9], [[7, 8, 9]]]
        assert "placewright_tokens_total 10.0" in client.get("/metrics").text
        until(lambda: engine.forgotten == [7, 7, 7])
        assert client.post("/v1/run", json=SAMPLE).status_code == 404


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[]", "no request to continue prompts"),
        (b'{"prompt_ids": [[1]], "temperature": 1}', "unknown field `temperature`"),
        (b"{}", "give either 'prompt_ids'"),
        (b'{"prompt_ids": [[1]], "prompt": "a"}', "give either 'prompt_ids'"),
        (b'{"prompt": "a"}', "has no tokenizer"),
        (b'{"prompt_ids": [[100]]}', "has the token 100; tokens are 0 to 99"),
        (b'{"prompt_ids": [[1]], "max_tokens": 50}', "is above the 50"),
    ],
)
def test_prompts_that_can_not_be_continued_get_400(content: bytes, said: str) -> None:
    """No step is taken for them."""
    engine = FakeDecoder()
    with served(engine) as client:
        wrong = client.post("/v1/generate", content=content)
        assert wrong.status_code == 400 and said in wrong.json()["error"]
    assert engine.steps == 0


def test_a_generation_that_takes_too_long_takes_no_further_step() -> None:
    """504, the caches are dropped, and what is late is not gone on with."""
    engine = FakeDecoder()
    engine.held = True
    with served(engine, timeout_s=0.05) as client:
        assert client.post("/v1/generate", json={"prompt_ids": [[1]]}).status_code == 504
        until(lambda: engine.forgotten == [7])
        engine.release()
        assert engine.steps == 1


def test_a_stream_that_fails_ends_with_the_reason() -> None:
    """Its head has been sent, so the reason is its last event."""
    engine = FakeDecoder()
    engine.held = True
    with served(engine, timeout_s=0.05) as client:
        late = client.post("/v1/generate", json={"prompt_ids": [[1]], "stream": True})
        assert late.status_code == 200 and json.loads(late.text.removeprefix("data: "))["error"].startswith("no answer")
        assert counts(client) == {("generate", "504"): 1}


def counts(client: TestClient) -> dict[tuple[str, str], int]:
    """Requests by endpoint and status, as the metrics have them."""
    found = re.findall(
        r'^placewright_requests_total\{endpoint="(\w+)",status="(\d+)"\} (\d+)',
        client.get("/metrics").text,
        re.MULTILINE,
    )
    return {(endpoint, status): int(number) for endpoint, status, number in found}


def test_a_stream_is_counted_as_what_it_ends_with() -> None:
    """One that comes to its end, and one that its reader leaves, which stops it."""
    engine = FakeDecoder()
    with served(engine) as client:
        body = {"prompt_ids": [[6]], "stream": True}
        client.post("/v1/generate", json=body)
        assert counts(client) == {("generate", "200"): 1}

    async def leave() -> None:
        """Ask for a stream, and be gone when its head comes."""
        engine.held = True
        app = make_app(engine, Settings(timeout_s=30.0, queue=2, at_once=1))
        sent: list[str] = []
        waiting = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        begun = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message["type"])
            begun.set()

        scope = {"type": "http", "method": "POST", "path": "/v1/generate", "headers": [], "query_string": b""}
        await app(scope, receive, send)
        assert sent == ["http.response.start"]
        engine.release()
        waiting_for_metrics: list[bytes] = []

        async def nothing() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def keep(message: Any) -> None:
            waiting_for_metrics.append(message.get("body", b""))

        await app({**scope, "method": "GET", "path": "/metrics"}, nothing, keep)
        assert b'placewright_requests_total{endpoint="generate",status="499"} 1.0' in b"".join(waiting_for_metrics)

    steps = engine.steps
    asyncio.run(leave())
    until(lambda: len(engine.forgotten) == 2)
    assert engine.steps == steps + 1


def test_others_are_answered_while_a_large_body_is_read() -> None:
    """A tokenizer that works for long on a text does so in a thread: health is told meanwhile."""
    began, go_on = threading.Event(), threading.Event()

    class Slow(Letters):
        def tokens(self, text: str) -> list[int]:
            began.set()
            assert go_on.wait(30)
            return super().tokens(text)

    with served(FakeDecoder(), texts=Slow()) as client, ThreadPoolExecutor(1) as other:
        asked = other.submit(client.post, "/v1/generate", json={"prompt": "a", "max_tokens": 1})
        assert began.wait(30)
        assert client.get("/health").status_code == 200
        go_on.set()
        assert asked.result(30).json()["texts"] == ["b"]


def test_who_is_not_answered_in_time_when_the_server_ends_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A stream, a generation and half a body, when the time to end in is over: an error each, and no traceback."""
    uvicorn = pytest.importorskip("uvicorn")
    engine = FakeDecoder()
    engine.held = True
    app = make_app(engine, Settings(timeout_s=30.0, queue=2, at_once=2))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=0.1))
    answers = []
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as other, ExitStack() as clients:
        serving = other.submit(asyncio.run, server.serve(sockets=[listener]))
        head = b"POST /v1/generate HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"
        bodies = [b'{"prompt_ids": [[1]], "stream": %s}' % stream for stream in (b"true", b"false")]
        for sent in (*(head % len(body) + body for body in bodies), head % 9 + b"{"):
            client = clients.enter_context(socket.create_connection(listener.getsockname(), timeout=30))
            client.sendall(sent)
            answers.append(client.makefile("rb"))
        assert answers[0].readline() == b"HTTP/1.1 200 OK\r\n"
        until(lambda: len(server.server_state.tasks) == 3 and len(engine.pending) == 2)
        server.should_exit = True
        serving.result(30)
        said = [answer.read() for answer in answers]
    engine.release()
    assert all(b'{"error":"the server was told to end before this was answered"}' in answer for answer in said)
    assert [answer.split(b"\r\n")[0] for answer in said[1:]] == [b"HTTP/1.1 503 Service Unavailable"] * 2
    assert not any(record.exc_info for record in caplog.records)

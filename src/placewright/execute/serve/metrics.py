"""What a server counts, in the words of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]


class Metrics:
    """Requests, their times, the line, and tokens, of one server.

    Parameters
    ----------
    waiting, under_way, up : callable
        Asked whenever the figures are read.
    """

    def __init__(self, waiting: Callable[[], float], under_way: Callable[[], float], up: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "placewright_requests", "Requests answered.", ["endpoint", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "placewright_request_seconds",
            "From a request's arrival to its answer, of those that were served.",
            ["endpoint"],
            registry=self._registry,
            buckets=[m * 10.0**e for e in range(-3, 3) for m in (1, 2, 5)],
        )
        self.tokens = Counter("placewright_tokens", "Tokens generated.", registry=self._registry)
        for name, text, ask in (
            ("placewright_waiting", "Requests that wait for a place.", waiting),
            ("placewright_under_way", "Requests under way.", under_way),
            ("placewright_up", "1 while the plan can be run.", up),
        ):
            Gauge(name, text, registry=self._registry).set_function(ask)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return bytes(generate_latest(self._registry))

"""A lid on memory while native code works on an untrusted model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["bounded_memory"]


@contextmanager
def bounded_memory(extra_bytes: int) -> Iterator[None]:
    """Let the process take at most so many more bytes of address space; what goes beyond raises ``MemoryError``.

    A model of a few bytes can state a shape of 2**60 dimensions, which shape inference would go on to write down. The
    limit holds for the whole process while the block runs. Where the system has no such limit, there is none.

    Parameters
    ----------
    extra_bytes : int

    Raises
    ------
    MemoryError
        From within the block.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + extra_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

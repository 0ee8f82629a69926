"""What makes a kernel: compiled when it is first called, once for an installation, also where several processes do so.

What is compiled lies on disk. A process that compiles a function holds the lock of its file meanwhile; one that wants
the same function waits, and reads it. So processes that compile at the same time share the work and do none of it
twice. They can't wait for each other in a circle, since a function waits only for those that it calls.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, overload
from zlib import crc32

import numba
from numba import types
from numba.core import event as numba_event
from numba.core.caching import FunctionCache

from placewright.clock import standing_still

try:
    import fcntl
except ImportError:  # no locks on files: each process compiles for itself
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "at_first_compiling",
    "can_lock",
    "inner",
    "kernel",
    "tell_of_missing",
    "uncounted",
    "uncounted_inner",
    "writing",
]

Function = TypeVar("Function", bound=Callable[..., Any])

LOCKS = "kernels.lock"
"""File beside what is compiled; a byte of it is the lock of a function. It stays empty."""

POLL_S = 0.02
"""How often a process that waits looks for what it waits for."""

LONGEST_WAIT_S = 120.0
"""Seconds after which a process compiles what another one seems to have begun and left."""

_types: Any = types
_numba: Any = numba  # whose types know less than it does
_event: Any = numba_event
_FunctionCache: Any = FunctionCache
_Listener: Any = numba_event.Listener

writing = threading.Lock()
"""Held while a file is written."""

_actions: list[Callable[[], None]] = []
_files: dict[str, int] = {}


@overload
def kernel(function: Function, /) -> Function: ...
@overload
def kernel(**options: Any) -> Callable[[Function], Function]: ...
def kernel(function: Any = None, /, **options: Any) -> Any:
    """Compile a function at its first call, without the interpreter's lock, and keep it on disk.

    Under ``NUMBA_DISABLE_JIT=1`` it stays what it is.
    """
    if function is None:
        return lambda later: _made(later, options)
    return _made(function, options)


def inner(function: Function) -> Function:
    """Compile a function that only kernels call: it gets no face for Python, which takes a sixth of the time.

    Python must not call it, unless it is not compiled.
    """
    made: Function = kernel(no_cpython_wrapper=True)(function)
    return made


def uncounted_inner(function: Function) -> Function:
    """Compile a function that only kernels call and that makes no arrays."""
    made: Function = kernel(no_cpython_wrapper=True, _nrt=False)(function)
    return made


def uncounted(function: Function) -> Function:
    """Compile a function that makes no arrays, without counting references, which for tuples of many takes long."""
    made: Function = kernel(_nrt=False)(function)
    return made


def can_lock() -> bool:
    """Whether processes can leave a function to each other here."""
    return fcntl is not None


@contextmanager
def at_first_compiling(action: Callable[[], None]) -> Iterator[None]:
    """Call something when within this block a kernel is first found not to be on disk; never, if all are."""
    called: list[bool] = []

    def once() -> None:
        if not called:
            called.append(True)
            action()

    _actions.append(once)
    try:
        yield
    finally:
        _actions.remove(once)


def tell_of_missing() -> None:
    """Call what waits for the first kernel that is not on disk."""
    for action in tuple(_actions):
        action()


def _made(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    made = _numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    if hasattr(made, "signatures"):  # not so under ``NUMBA_DISABLE_JIT=1``
        made._cache = _SharedCache(made.py_func)  # what ``cache=True`` does, but shared
        made.get_call_template = _for_any_integer(made.get_call_template)
    return made


def _for_any_integer(called: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call one form of a kernel, not one for 0, one for int32 and one for int64: each would be compiled."""

    def wide(given: Any) -> Any:
        plain = _types.unliteral(given)
        return types.int64 if plain == types.int32 else plain

    def template(args: Any, kws: Any) -> Any:
        return called(tuple(wide(a) for a in args), {name: wide(a) for name, a in kws.items()})

    return template


class _SharedCache(_FunctionCache):  # type: ignore[misc]
    """The compiler's cache on disk, in which a function is missing to one process at a time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._byte = crc32(self._impl.filename_base.encode())
        self._held = False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Read a function; where it isn't there come back with its lock, to compile it."""
        with standing_still():
            found = super().load_overload(sig, target_context)
            if found is not None:
                return found
            tell_of_missing()
            if self._locked():
                found = super().load_overload(sig, target_context)  # another process was quicker
            if found is not None:
                self.let_go()
            return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a function and give its lock back."""
        try:
            with standing_still(), writing:
                super().save_overload(sig, data)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Give the lock back, if it is held."""
        if self._held:
            self._held = False
            fcntl.lockf(_files[self.cache_path], fcntl.LOCK_UN, 1, self._byte)

    def _locked(self) -> bool:
        """Wait for the lock; False where there are no locks, or another process keeps it for ever."""
        if fcntl is None or self._held:
            return False
        with suppress(OSError):  # a file system without locks
            if self.cache_path not in _files:
                self._impl.locator.ensure_cache_path()
                path = Path(self.cache_path) / LOCKS
                _files[self.cache_path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            for _ in range(int(LONGEST_WAIT_S / POLL_S)):
                try:
                    fcntl.lockf(_files[self.cache_path], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
                except (BlockingIOError, PermissionError):
                    time.sleep(POLL_S)
                else:
                    self._held = True
                    return True
        return False


class _Compiling(_Listener):  # type: ignore[misc]
    """What goes with compiling: the clock of budgets stands, and so does the search for garbage in circles.

    The compiler makes millions of small objects that live as long as it works; to look through them again and again
    takes a seventh of the time.
    """

    def __init__(self) -> None:
        self._begun: list[ExitStack] = []

    def on_start(self, event: Any) -> None:
        """Begin to compile a function, perhaps within another."""
        begun = ExitStack()
        begun.enter_context(standing_still())
        if gc.isenabled():
            gc.disable()
            begun.callback(gc.enable)
        self._begun.append(begun)

    def on_end(self, event: Any) -> None:
        """Go on; what can't be compiled is no other process's to wait for."""
        self._begun.pop().close()
        function, types = event.data["dispatcher"], tuple(event.data["args"])
        if isinstance(function._cache, _SharedCache) and types not in function.overloads:  # it failed
            function._cache.let_go()


_event.register("numba:compile", _Compiling())

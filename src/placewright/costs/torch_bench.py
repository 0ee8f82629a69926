"""Measuring torch operators on the CPU, in the worker process."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from placewright.costs.tasks import Answer, Input, Task, TorchUnit
from placewright.costs.timing import measure
from placewright.host import cache_bytes

__all__ = ["WHOLE_S", "TorchBench", "compiled", "made_up"]

WHOLE_S = 1.0
"""Seconds that runs of a whole network are timed for."""

MOST_POOL_BYTES = 2**27
MOST_EVICTED_BYTES = 2**26

ALIGNED = 64
"""Elements that weights in the pool begin at multiples of, as an allocator would have it."""


class TorchBench:
    """Torch with so many threads; what an empty call costs is subtracted.

    Caches are left as the network leaves them: before each run a quarter of the last level's bytes is read, which
    drives the core's own caches out, and then the inputs; and each run finds its weights at another place of a pool
    that is twice as large as the last level. A network's weights have left that cache since its last run, while its
    code, inputs and freed results are still there. With 2 MiB read and weights in one place, sums of operators were 3
    to 12 % below whole networks; with all of the last level read, up to 62 % above.
    """

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self.threads = threads
        self._random = torch.Generator().manual_seed(0)
        self._filler = torch.ones(min(cache_bytes() // 4, MOST_EVICTED_BYTES) // 8, dtype=torch.int64)
        self._empty = compiled(TorchUnit((Input("x", "float32", (1,)),), ()))
        self._one = torch.zeros(1)
        self._pool = _Pool(min(2 * cache_bytes(), MOST_POOL_BYTES), self._random)
        self.call_s = measure(lambda: self._empty(self._one), threads=threads).seconds
        before = self._before([self._one])
        self._cold_call_s = min(
            measure(lambda: self._empty(self._one), threads=threads, before=before).seconds for _ in range(3)
        )

    def answer(self, task: Task) -> Answer:
        """Do a task."""
        if not isinstance(task, TorchUnit):
            raise TypeError(f"{type(task).__name__} is no task for torch")
        with torch.inference_mode():
            function = compiled(task)
            moved = (
                {} if task.whole else {k: i for k, i in enumerate(task.inputs) if not i.warm and self._pool.takes(i)}
            )
            tensors = [
                self._pool.place(i) if k in moved else made_up(i, self._random) for k, i in enumerate(task.inputs)
            ]
            warm = [t for t, i in zip(tensors, task.inputs, strict=True) if i.warm and t.dtype != torch.bool]
            if task.whole:
                sample = measure(lambda: function(*tensors), threads=self.threads, enough_s=WHOLE_S)
                return Answer(max(0.0, sample.seconds - self.call_s), self.call_s, sample.runs)
            before = self._before(warm)

            def prepare() -> None:
                for k, given in moved.items():
                    tensors[k] = self._pool.place(given)
                before()

            sample = measure(lambda: function(*tensors), threads=self.threads, before=prepare)
            return Answer(max(0.0, sample.seconds - self._cold_call_s), self.call_s, sample.runs)

    def _before(self, warm: list[torch.Tensor]) -> Callable[[], None]:
        filler = self._filler

        def before() -> None:
            filler.sum()
            self._empty(self._one)
            for tensor in warm:
                tensor.sum()

        return before


class _Pool:
    """Floats that weights are cut from, one behind the other and round again; so many bytes of each dtype."""

    def __init__(self, size_bytes: int, random: torch.Generator) -> None:
        self.size_bytes, self._random = size_bytes, random
        self._floats: dict[torch.dtype, torch.Tensor] = {}
        self._at = 0

    def takes(self, given: Input) -> bool:
        """Whether a tensor has room here twice: a larger one drives itself out of the cache."""
        dtype: torch.dtype = getattr(torch, given.dtype)
        return dtype.is_floating_point and 2 * _extent(given) * dtype.itemsize <= self.size_bytes

    def place(self, given: Input) -> torch.Tensor:
        """Return the tensor at the next place."""
        dtype: torch.dtype = getattr(torch, given.dtype)
        if dtype not in self._floats:
            self._floats[dtype] = torch.rand(self.size_bytes // dtype.itemsize, generator=self._random).to(dtype)
        count = _extent(given)
        if self._at + count > len(self._floats[dtype]):
            self._at = 0
        flat = self._floats[dtype][self._at : self._at + count]
        self._at += math.ceil(count / ALIGNED) * ALIGNED
        return flat.as_strided(given.shape, given.strides)


def _extent(given: Input) -> int:
    """Elements from a tensor's first to its last."""
    return 1 + sum((n - 1) * s for n, s in zip(given.shape, given.strides, strict=True)) if all(given.shape) else 0


def made_up(given: Input, random: torch.Generator) -> torch.Tensor:
    """Make a tensor up, on the CPU."""
    dtype: torch.dtype = getattr(torch, given.dtype)
    count = _extent(given)
    if dtype.is_floating_point or dtype.is_complex:
        flat = torch.rand(count, generator=random).to(dtype)
    else:
        flat = torch.randint(0, max(1, given.below), (count,), generator=random).to(dtype)
    return flat.as_strided(given.shape, given.strides)


def compiled(task: TorchUnit, place: str = "cpu") -> Callable[..., object]:
    """Python function that makes the calls, as fx writes it: as little around them as in an exported module."""
    graph = Graph()
    nodes: dict[str, Node] = {i.name: graph.placeholder(f"x{k}") for k, i in enumerate(task.inputs)}
    last: Node | None = next(iter(nodes.values()), None)
    for name, overload, arguments, keywords, result, taken in task.calls:
        args = tuple(_decoded(a, nodes, place) for a in arguments)
        kwargs = {key: _decoded(a, nodes, place) for key, a in keywords.items()}
        last = nodes[result] = graph.call_function(_operator(name, overload), args, kwargs)
        for part, index in taken:
            nodes[part] = graph.call_function(operator.getitem, (nodes[result], index))
    graph.output(last)
    return GraphModule(torch.nn.Module(), graph)


def _operator(name: str, overload: str) -> Callable[..., object]:
    """``aten::add`` and ``Tensor`` as torch holds them."""
    namespace, _, rest = name.partition("::")
    found: Callable[..., object] = getattr(getattr(getattr(torch.ops, namespace), rest), overload)
    return found


def _decoded(argument: Any, nodes: Mapping[str, Node], place: str) -> Any:
    if not isinstance(argument, list | tuple):
        return argument
    tag, content = argument
    if tag == "list":
        return [_decoded(a, nodes, place) for a in content]
    if tag == "tensor":
        return nodes[content]
    if tag == "device":
        return torch.device(place)
    return getattr(torch, content)

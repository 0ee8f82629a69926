"""Measure the processing times of a network's operators on the devices that this machine offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from placewright import host
from placewright.cluster import Cluster, Device
from placewright.costs.analytic import analytic
from placewright.costs.cache import TimesCache, default_folder, key_of
from placewright.costs.profile_backend import Network, backend_version, network_of
from placewright.costs.profile_cuts import CutFigures, fit_cuts
from placewright.costs.profile_report import Fallback, ProfileReport
from placewright.costs.roofline import effective_peak, roofline
from placewright.costs.tasks import Answer, Setup, Task
from placewright.costs.worker_process import MeasuringProcess
from placewright.errors import ExecutionError, InvalidInput
from placewright.graph import OperatorGraph
from placewright.problem import Times
from placewright.units import format_seconds

__all__ = ["profile"]

METHOD = 9
"""Counts up when the way of measuring changes: what older versions measured is not used."""

OPERATOR_TIMEOUT_S = 60.0
WHOLE_TIMEOUT_S = 300.0
FARTHEST_RATIO = 1.5
"""Between a whole network and the sum of its operators; where they are farther apart, they are not reconciled."""

WHOLE_ROUNDS = 3
"""The whole network is timed before, amid and after its operators. Its time is the least of the three medians: a run
of a whole network is long enough to meet whatever else the machine does, which only ever makes it slower."""


def profile(
    model: str | Path,
    graph: OperatorGraph,
    cluster: Cluster,
    *,
    cache: Path | Literal["default"] | None = "default",
    on_progress: Callable[[str], None] | None = None,
    device_names: Collection[str] | None = None,
    reconcile: bool = True,
) -> ProfileReport:
    """Measure what can be measured here, and cost the rest from its figures.

    A device is measured when it is a ``cpu`` with ``cores`` that this process may use, or, for models that torch runs,
    a GPU of this machine (:func:`placewright.host.gpu_name`). Each distinct operator (by signature) runs alone in a
    process of its own that is pinned to those cores; devices with as many cores and threads, and GPUs of one name,
    share the result. A fused operator is one unit. ``cpu_share`` divides the times.

    Parameters
    ----------
    model : str or Path
        What ``graph`` was captured from, as :func:`placewright.capture.capture` takes it.
    graph : OperatorGraph
    cluster : Cluster
    cache : Path, None or "default"
        Folder of the times that are kept by content; ``None``: no cache; by default ``PLACEWRIGHT_CACHE``, or the
        user's cache folder.
    on_progress : callable, optional
        Told what is being measured, a line at a time.
    device_names : collection of str, optional
        Measure only these.
    reconcile : bool
        Scale a device's times so that they sum up to the whole network's time on it: what operators miss (or double)
        when they are measured one by one is then spread over all of them. Not done beyond a factor of 1.5.

    Returns
    -------
    ProfileReport

    Raises
    ------
    InvalidInput
        If the model and the graph don't match, or a device that is not reachable lacks figures.
    ExecutionError
        If no operator at all could be measured on a device that is reachable.

    Notes
    -----
    What an operator loses at one side of a cut (``times.cut_s``) is half an empty call and half of what ONNX Runtime
    takes to convert the layout of what it reads and makes. The conversions are timed by themselves and scaled so that
    they account for what the network, run in pieces, takes longer. Without conversions, and for torch, it is the same
    for all operators: ``cut_overhead_s``. Devices that are not measured keep the ``cut_overhead_s`` that they state.

    Where ONNX Runtime converts a layout between two operators of the network, the one that makes the tensor is charged,
    or that which wants it converted.

    An operator that can't be measured is costed by the roofline times the median ratio of measured to roofline time
    over the operators that were measured on the same device. Each is listed in ``fallbacks``.
    """
    reachable = _reachable(cluster, device_names, gpus=not str(model).lower().endswith(".onnx"))
    costed = [i for i in range(len(cluster)) if i not in reachable]
    processing = np.empty((len(graph), len(cluster)))
    cut_s = np.tile([d.cut_overhead_s for d in cluster.devices], (len(graph), 1))
    if costed:
        apart = Cluster([cluster.devices[i] for i in costed], name=cluster.name)
        processing[:, costed] = analytic(graph, apart).processing_s
    run = _Run(model, graph, cluster, TimesCache(default_folder() if cache == "default" else cache), on_progress)
    run.measure(reachable)
    for i in reachable:
        device = cluster.devices[i]
        column = run.columns[_configuration(device)] / device.cpu_share
        total = float(column.sum())
        run.operator_sum_s[device.name] = total
        whole = run.wholes.get(_configuration(device), 0.0) / device.cpu_share
        if whole > 0:
            run.whole_s[device.name] = whole
        processing[:, i] = column * (run.scale(device.name) if reconcile else 1.0)
        figures = run.cuts[_configuration(device)]
        cut_s[:, i] = figures.cut_s(run.conversions[_configuration(device)]) / device.cpu_share
        run.cut_overhead_s[device.name] = figures.overhead_s / device.cpu_share
    source = "profiled" if not costed else "profiled+analytic" if reachable else "analytic"
    return ProfileReport(
        Times(processing, source=source, cut_s=cut_s),
        tuple(cluster.devices[i].name for i in reachable),
        len(set(run.signatures)),
        run.measured,
        run.hits,
        MappingProxyType(run.operator_sum_s),
        MappingProxyType(run.whole_s),
        MappingProxyType(run.cut_overhead_s),
        tuple(run.fallbacks),
        tuple(run.notes),
    )


def _reachable(cluster: Cluster, device_names: Collection[str] | None, *, gpus: bool) -> list[int]:
    unknown = sorted(set(device_names or ()) - cluster.index.keys())
    if unknown:
        known = ", ".join(cluster.index)
        raise InvalidInput([f"there is no device {name!r} to profile; there are: {known}" for name in unknown])
    return [
        i
        for i, d in enumerate(cluster.devices)
        if (host.is_here(d) if gpus else host.has_cores(d)) and (device_names is None or d.name in device_names)
    ]


Configuration = tuple[int, int, str]


def _configuration(device: Device) -> Configuration:
    """Say what a device's times depend on: devices that agree in it are measured once."""
    if gpu := host.gpu_name(device):
        return 0, 0, gpu
    speeds = sorted(_core_speed(c) for c in device.cores)
    return len(device.cores), device.threads or len(device.cores), ",".join(speeds)


def _core_speed(core: int) -> str:
    """Highest clock of a core in kHz, so that fast and slow cores are told apart; empty where it is not known."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/cpuinfo_max_freq").read_text().strip()
    except OSError:
        return ""


class _Run:
    """One profile while it is being made."""

    def __init__(
        self,
        model: str | Path,
        graph: OperatorGraph,
        cluster: Cluster,
        cache: TimesCache,
        on_progress: Callable[[str], None] | None,
    ) -> None:
        self.model, self.graph, self.cluster, self.cache, self.on_progress = model, graph, cluster, cache, on_progress
        self.signatures = [v.signature or f"operator {k}" for k, v in enumerate(graph.operators)]
        self.first: dict[str, int] = {}
        for k, signature in enumerate(self.signatures):
            self.first.setdefault(signature, k)
        self.columns: dict[Configuration, npt.NDArray[np.float64]] = {}
        self.wholes: dict[Configuration, float] = {}
        self.conversions: dict[Configuration, npt.NDArray[np.float64]] = {}
        self.cuts: dict[Configuration, CutFigures] = {}
        self.operator_sum_s: dict[str, float] = {}
        self.whole_s: dict[str, float] = {}
        self.cut_overhead_s: dict[str, float] = {}
        self.fallbacks: list[Fallback] = []
        self.notes: list[str] = []
        self.measured = self.hits = 0
        self._network: Network | None = None

    def measure(self, reachable: list[int]) -> None:
        """Fill the tables for each configuration."""
        by_configuration: dict[Configuration, Device] = {}
        for i in reachable:
            by_configuration.setdefault(_configuration(self.cluster.devices[i]), self.cluster.devices[i])
        for configuration, device in by_configuration.items():
            _Device(self, device, configuration).measure()

    def scale(self, name: str) -> float:
        """Factor that makes a device's operators sum up to the whole network, unless the two are worlds apart."""
        total, whole = self.operator_sum_s[name], self.whole_s.get(name, 0.0)
        if not (total > 0 and whole > 0):
            return 1.0
        if not 1 / FARTHEST_RATIO <= whole / total <= FARTHEST_RATIO:
            self.notes.append(
                f"on {name!r} the operators sum up to {format_seconds(total)} but the whole network took "
                f"{format_seconds(whole)}: something disturbed the measurement, so the operators' times are left "
                "as they are; profile again on a quiet machine without the cache"
            )
            return 1.0
        return whole / total

    @property
    def network(self) -> Network:
        """The back-end's view of the network, made when the first measurement needs it."""
        if self._network is None:
            self._network = network_of(self.model, self.graph)
        return self._network


class _Device:
    """One configuration while it is being measured."""

    def __init__(self, run: _Run, device: Device, configuration: Configuration) -> None:
        self.run, self.device, self.configuration = run, device, configuration
        self._place = f"cuda:{host.gpu_number(device)}" if host.gpu_name(device) else ""
        self._clocks: list[float] = []
        self.keys = {s: self._key(s) for s in run.first}
        digest = key_of({"signatures": run.signatures, "tensors": [(t.producer, t.readers) for t in run.graph.tensors]})
        self.whole_key = self._key(f"whole {digest}")
        self.within_key = self._key(f"within {digest}")
        self.conversion_keys = {s: self._key(f"conversions {s}", s) for s in run.first}
        self.cut_keys = [self._key(f"cut {digest} {figure}") for figure in ("call", "overhead", "scale")]

    def _key(self, subject: str, signature: str = "") -> str:
        cores, threads, speeds = self.configuration
        own = (
            ""
            if not (signature or subject).startswith("operator ")
            else key_of({"graph": [v.name for v in self.run.graph.operators]})
        )
        return key_of(
            {
                "method": METHOD,
                "signature": subject,
                "graph": own,
                "backend": backend_version(self.run.model),
                "cpu": host.cpu_name(),
                "cores": cores,
                "threads": threads,
                "speeds": speeds,
                "clock": "events" if self._place else "thread" if threads == 1 else "wall",
            }
        )

    def measure(self) -> None:
        run, cache = self.run, self.run.cache
        missing = [
            s for s in run.first if cache.get(self.keys[s]) is None or cache.get(self.conversion_keys[s]) is None
        ]
        run.hits += len(run.first) - len(missing)
        whole, kept = cache.get(self.whole_key), [f for k in self.cut_keys if (f := cache.get(k)) is not None]
        cut = CutFigures(*kept) if len(kept) == len(self.cut_keys) else None
        run.hits += (whole is not None) + (cut is not None)
        reasons: dict[str, str] = {}
        if whole is not None and cache.get(self.within_key) is None:
            whole = None
        if missing or whole is None or cut is None:
            setup = Setup(self.device.name, self.device.cores, self.configuration[1], self._place)
            with MeasuringProcess(setup) as process:
                whole, cut, reasons = self._ask_all(process, missing, whole, cut)
        run.columns[self.configuration] = self._column(reasons)
        if whole is not None:
            run.wholes[self.configuration] = whole
        run.conversions[self.configuration] = self._conversions()
        run.cuts[self.configuration] = cut or CutFigures(0.0, 0.0)

    def _ask_all(
        self, process: MeasuringProcess, missing: list[str], whole: float | None, cut: CutFigures | None
    ) -> tuple[float | None, CutFigures | None, dict[str, str]]:
        run = self.run
        network = run.network
        total = len(missing) + 2
        self._tell("preparing", 0, total)
        network.prepare(lambda task: self._prepared(process, task))
        rounds = [k * len(missing) // (WHOLE_ROUNDS - 1) for k in range(WHOLE_ROUNDS)] if whole is None else []
        wholes: list[float] = []
        failure = ""
        reasons: dict[str, str] = {}
        call_s = 0.0
        for k in range(len(missing) + 1):
            while rounds and rounds[0] == k:
                rounds.pop(0)
                if not failure:
                    self._tell("the whole network", k, total)
                    answer = process.ask(network.whole(), timeout_s=WHOLE_TIMEOUT_S)
                    failure, call_s = answer.error, max(call_s, answer.call_s)
                    if not wholes and not failure:
                        self._keep_within(answer)
                    wholes += [answer.seconds] if not answer.error else []
            if k == len(missing):
                break
            signature = missing[k]
            operator = run.first[signature]
            self._tell(run.graph.operators[operator].name, k, total)
            try:
                answer = process.ask(network.unit(operator), timeout_s=OPERATOR_TIMEOUT_S)
            except InvalidInput as error:
                answer = Answer(error=str(error))
            if answer.error:
                reasons[signature] = answer.error
            else:
                run.measured += 1
                call_s = max(call_s, answer.call_s)
                self._clocks += [answer.clock_hz] if answer.clock_hz else []
                run.cache.put(self.keys[signature], answer.seconds)
                run.cache.put(self.conversion_keys[signature], answer.conversions_s)
        if wholes:
            run.measured += 1
            whole = min(wholes)
            run.cache.put(self.whole_key, whole)
        if self._clocks:
            low, high = (round(f(self._clocks) / 1e6) for f in (min, max))
            run.notes.append(f"the clock of {self.device.name!r} was {low} to {high} MHz while it was measured")
        if failure:
            run.notes.append(f"the whole network could not be measured on {self.device.name!r}: {failure}")
        if cut is None:
            self._tell("the network in pieces", total - 1, total)
            cut = self._cut(process, network, call_s)
        self._tell("", total, total)
        return whole, cut, reasons

    def _keep_within(self, answer: Answer) -> None:
        """Keep what layouts converted inside the network take: how many operators pay for one, and each one's time."""
        paid: dict[int, float] = {}
        for conversion in answer.within:
            if (v := self.run.network.converting(conversion)) is not None:
                paid[v] = paid.get(v, 0.0) + conversion.seconds
        for v, seconds in paid.items():
            self.run.cache.put(self._within(v), seconds)
        self.run.cache.put(self.within_key, float(len(paid)))

    def _within(self, operator: int) -> str:
        return key_of({"of": self.within_key, "operator": operator})

    def _prepared(self, process: MeasuringProcess, task: Task) -> Answer:
        answer = process.ask(task, timeout_s=WHOLE_TIMEOUT_S)
        if answer.error:
            self.run.notes.append(
                f"sizes that the network computes are made up, since running it failed: {answer.error}"
            )
        return answer

    def _cut(self, process: MeasuringProcess, network: Network, call_s: float) -> CutFigures:
        if call_s == 0:  # all else was in the cache
            call_s = process.ask(network.whole(), timeout_s=WHOLE_TIMEOUT_S).call_s
        made = network.pieces()
        figures = CutFigures(call_s, call_s / 2)
        if made is None:
            self.run.notes.append(f"what a cut costs on {self.device.name!r} is taken as an empty call")
        else:
            task, sides = made
            answer = process.ask(task, timeout_s=WHOLE_TIMEOUT_S)
            if answer.error:
                self.run.notes.append(
                    f"what a cut costs on {self.device.name!r} is taken as an empty call and conversions of layout, "
                    f"since the network in pieces could not be measured: {answer.error}"
                )
                return figures
            self.run.measured += 1
            figures = fit_cuts(self._conversions(), call_s, answer.seconds, sides)
        for key, figure in zip(self.cut_keys, (figures.call_s, figures.overhead_s, figures.scale), strict=True):
            self.run.cache.put(key, figure)
        return figures

    def _conversions(self) -> npt.NDArray[np.float64]:
        """(n,) seconds of each operator's conversions of layout; NaN where they were not measured."""
        known = {s: self.run.cache.get(key) for s, key in self.conversion_keys.items()}
        return np.array([np.nan if (t := known[s]) is None else t for s in self.run.signatures])

    def _column(self, reasons: Mapping[str, str]) -> npt.NDArray[np.float64]:
        run = self.run
        times = {s: t for s in run.first if (t := run.cache.get(self.keys[s])) is not None}
        column = np.array([times.get(s, np.nan) for s in run.signatures])
        failed = np.isnan(column)
        if failed.all():
            reason = next(iter(reasons.values()), "unknown")
            raise ExecutionError(f"no operator could be measured on device {self.device.name!r}: {reason}")
        if failed.any():
            guess = roofline(run.graph, Cluster([_costable(self.device)])).processing_s[:, 0]
            known = ~failed & (guess > 0)
            column[failed] = guess[failed] * float(np.median(column[known] / guess[known]))
            run.fallbacks += [
                Fallback(self.device.name, run.graph.operators[v].name, reasons[run.signatures[v]])
                for v in np.flatnonzero(failed).tolist()
            ]
        if run.cache.get(self.within_key):
            column += [run.cache.get(self._within(v)) or 0.0 for v in range(len(column))]
        return column

    def _tell(self, name: str, done: int, total: int) -> None:
        if self.run.on_progress is not None:
            self.run.on_progress(f"profiling on {self.device.name}: {done} of {total} {name}".rstrip())


def _costable(device: Device) -> Device:
    """Give a device peaks if it has none: only their ratio matters where the roofline is scaled, here 8 FLOP a byte."""
    if effective_peak(device, "fp32") > 0 and device.memory_bandwidth_bytes_per_s > 0:
        return replace(device, cpu_share=1.0)
    return replace(device, flops_per_s={"fp32": 80e9}, memory_bandwidth_bytes_per_s=10e9, cpu_share=1.0)

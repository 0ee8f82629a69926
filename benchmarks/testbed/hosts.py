"""Unlike hosts on one machine: network namespaces at a switch, links of a given bandwidth, shares of cores."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.testbed.description import Description, Host
from benchmarks.testbed.groups import ROOT, Group, mounted

from placewright.errors import ExecutionError

__all__ = ["INTERFACE", "Testbed", "why_not"]

PREFIX = "placewright-"
_NUMBERS = itertools.count()
INTERFACE = "eth0"
TOOLS = ("ip", "tc", "nsenter", "unshare", "hostname", "taskset", "chrt")

BURST_S = 2.5e-4
"""What a link may carry at once, beyond its bandwidth: little, so that its time is linear in the bytes."""
LEAST_BURST_BYTES, QUEUE_BYTES, MTU = 1 << 14, 64 << 20, 16000
"""The queue holds all that is under way: nothing is dropped and sent again."""

TICK_S = 5e-4
TICKER = f"""
import ctypes, os, signal, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
while True:
    time.sleep({TICK_S})
"""
"""The kernel looks whether a group has used its quota up when a timer ticks (every 4 ms with 250 Hz) or another process
gets the core. This one wants each core every half millisecond, so that a share is kept within a millisecond."""


def why_not() -> str:
    """Why there can be no testbed here; empty where there can."""
    if os.name != "posix" or not sys.platform.startswith("linux"):
        return "a testbed needs Linux"
    if os.geteuid() != 0:
        return "a testbed needs root: namespaces, queues of network interfaces and control groups are made"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"a testbed needs {', '.join(missing)} (packages iproute2 and util-linux)"
    if not mounted():
        return f"a testbed needs control groups with cpu and cpuset at {ROOT}"
    if not os.access(ROOT / "cpu" if mounted() == 1 else ROOT, os.W_OK):
        return f"a testbed needs control groups that can be written to, and {ROOT} can't"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        return "a testbed needs network namespaces, and the kernel makes none for this process"
    return ""


class Testbed:
    """A context manager: hosts are there within, and nothing is left after it, whatever happens.

    Parameters
    ----------
    description : Description

    Raises
    ------
    ExecutionError
        On entering, if it can't be made.
    """

    __test__ = False

    def __init__(self, description: Description) -> None:
        self.description = description
        self.name = f"{PREFIX}{os.getpid()}-{next(_NUMBERS)}"
        self.groups = {h.name: Group(f"{self.name}-{h.name}", h) for h in description.hosts}
        self._tickers: list[subprocess.Popen[bytes]] = []
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Testbed:
        reason = why_not()
        if reason:
            raise ExecutionError(reason)
        _remove_leftovers()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, host: Host) -> str:
        """Of a host, in the testbed."""
        return f"10.77.0.{1 + self.description.hosts.index(host)}"

    def namespace(self, host: Host) -> Path:
        """File by which a process enters a host's network."""
        return Path("/run/netns", self._namespace(host))

    def shape(self, bandwidth_bytes_per_s: float) -> None:
        """Give all links another bandwidth."""
        bits = round(bandwidth_bytes_per_s * 8)
        burst = max(LEAST_BURST_BYTES, round(bandwidth_bytes_per_s * BURST_S))
        queue = ("root", "tbf", "rate", f"{bits}bit", "burst", str(burst), "limit", str(QUEUE_BYTES))
        for k, host in enumerate(self.description.hosts):
            _call("tc", "-n", self._namespace(host), "qdisc", "replace", "dev", INTERFACE, *queue)
            _call("tc", "-n", self._switch, "qdisc", "replace", "dev", f"port{k}", *queue)

    def start(
        self,
        host: Host,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        confined: bool = True,
        **options: object,
    ) -> subprocess.Popen[str]:
        """Start a process on a host.

        Parameters
        ----------
        host : Host
        command : sequence of str
        environment : mapping, optional
            Besides this process's.
        confined : bool
            Whether it is held to the host's share from its start on; if not, ``groups[host.name].join`` does it later.
        **options
            As of :class:`subprocess.Popen`.
        """
        joins = [self.groups[host.name].entering()] if confined else []
        enter = f"exec nsenter --net={self.namespace(host)} unshare --uts"
        script = " && ".join([*joins, f'{enter} sh -c \'hostname {host.name}; exec "$@"\' host "$@"'])
        known = {"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        process = subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            ["sh", "-c", script, "host", *command],
            env={**os.environ, **known, **(environment or {})},
            text=True,
            start_new_session=True,
            **options,
        )
        self._started.append(process)
        return process  # type: ignore[no-any-return]

    @property
    def _switch(self) -> str:
        return f"{self.name}-switch"

    def _namespace(self, host: Host) -> str:
        return f"{self.name}-{host.name}"

    def _make(self) -> None:
        switch = self._switch
        _call("ip", "netns", "add", switch)
        _call("ip", "-n", switch, "link", "add", "switch", "mtu", str(MTU), "type", "bridge")
        _call("ip", "-n", switch, "link", "set", "switch", "up")
        for k, host in enumerate(self.description.hosts):
            inside = self._namespace(host)
            _call("ip", "netns", "add", inside)
            ends = ("type", "veth", "peer", "name", INTERFACE, "mtu", str(MTU), "netns", inside)
            _call("ip", "-n", switch, "link", "add", f"port{k}", "mtu", str(MTU), *ends)
            _call("ip", "-n", switch, "link", "set", f"port{k}", "master", "switch", "up")
            _call("ip", "-n", inside, "addr", "add", f"{self.address(host)}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _call("ip", "-n", inside, "link", "set", interface, "up")
            self.groups[host.name].make()
        self.shape(self.description.bandwidth_bytes_per_s)
        for core in sorted({h.core for h in self.description.hosts if h.share < 1}):
            command = ["taskset", "-c", str(core), sys.executable, "-S", "-E", "-c", TICKER]
            self._tickers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    def _remove(self) -> None:
        for ticker in self._tickers:
            ticker.kill()
            ticker.wait()
        self._tickers.clear()
        for process in self._started:  # one that has just been started may not be in its group yet
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        self._started.clear()
        for host in self.description.hosts:
            self.groups[host.name].remove()
        for name in (*(self._namespace(h) for h in self.description.hosts), self._switch):
            if Path("/run/netns", name).exists():
                subprocess.run(["ip", "netns", "del", name], check=False)


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise ExecutionError(f"{' '.join(command)} failed: {said[0]}")


def _remove_leftovers() -> None:
    """Remove the namespaces and groups of testbeds whose process was killed."""
    folders = [Path("/run/netns"), *((ROOT / kind) for kind in ("cpu", "cpuset", ""))]
    for folder in folders:
        for path in sorted(folder.glob(f"{PREFIX}[0-9]*-*")):
            owner = re.match(rf"{PREFIX}(\d+)-", path.name)
            if owner is None or Path("/proc", owner[1]).exists():
                continue
            if folder == folders[0]:
                subprocess.run(["ip", "netns", "del", path.name], check=False)
            else:
                with contextlib.suppress(OSError):
                    path.rmdir()

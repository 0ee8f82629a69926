"""What a testbed is made of: a YAML file of hosts and the links between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from placewright.errors import InvalidInput
from placewright.units import parse_bytes, parse_bytes_per_second

__all__ = ["Description", "Host", "read_testbed"]

MOST_HOSTS = 16
LEAST_SHARE = 0.05
LARGEST_BYTES = 1 << 16


@dataclass(frozen=True)
class Host:
    """One host: a network namespace, and a control group that holds its processes to a part of one core.

    Attributes
    ----------
    name : str
        Also what processes on it are told as the name of their machine.
    core : int
        CPU core of this machine.
    share : float
        Of that core's time, above 0 and up to 1.
    memory_bytes : int or None
        What a plan may use on it. Nothing enforces it.
    """

    name: str
    core: int
    share: float = 1.0
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Description:
    """Hosts at one switch, each joined to it by a link that carries as much in either direction.

    Attributes
    ----------
    hosts : tuple of Host
    bandwidth_bytes_per_s : float
        Of each host's link.
    """

    hosts: tuple[Host, ...]
    bandwidth_bytes_per_s: float


def read_testbed(path: Path) -> Description:
    """Read a description.

    Raises
    ------
    InvalidInput
        With every violation.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise InvalidInput(f"{path.name!r} is larger than {LARGEST_BYTES} B; it describes no testbed")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"{str(path)!r} can't be read as YAML: {first}") from None
    return described(content, path.name)


def described(content: object, what: str) -> Description:
    """Make a description of what a YAML file holds."""
    if (
        not isinstance(content, dict)
        or set(content) != {"hosts", "bandwidth"}
        or not isinstance(content["hosts"], list)
    ):
        raise InvalidInput(f"{what}: it needs 'hosts', a list, and 'bandwidth', for example '1 Gb/s', and no more")
    found: list[str] = []
    hosts = [host for k, row in enumerate(content["hosts"]) if (host := _host(row, f"host {k}", found)) is not None]
    if not found:
        found += _violations(hosts)
    if found:
        raise InvalidInput(found, what=what)
    return Description(tuple(hosts), parse_bytes_per_second(content["bandwidth"], "bandwidth"))


def _host(row: object, where: str, found: list[str]) -> Host | None:
    if not isinstance(row, dict) or not {"name", "core"} <= set(row) <= {"name", "core", "share", "memory"}:
        found.append(f"{where}: it needs 'name' and 'core', and may have 'share' and 'memory'")
        return None
    name, core, share = row["name"], row["core"], row.get("share", 1.0)
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]{0,7}", name):
        found.append(f"{where}: name {name!r} is not a letter and up to 7 letters and digits")
    elif not isinstance(core, int) or isinstance(core, bool) or core < 0:
        found.append(f"{where}: core {core!r} is no number of a core")
    elif not isinstance(share, int | float) or not LEAST_SHARE <= share <= 1:
        found.append(f"{where}: share {share!r} is not between {LEAST_SHARE} and 1")
    else:
        memory = row.get("memory")
        return Host(name, core, float(share), None if memory is None else parse_bytes(memory, f"{where}: memory"))
    return None


def _violations(hosts: list[Host]) -> list[str]:
    found = []
    if not 2 <= len(hosts) <= MOST_HOSTS:
        found.append(f"{len(hosts)} hosts are not 2 to {MOST_HOSTS}")
    if len({h.name for h in hosts}) < len(hosts):
        found.append("two hosts have one name")
    for core in sorted({h.core for h in hosts}):
        total = sum(h.share for h in hosts if h.core == core)
        if total > 1 + 1e-9:
            found.append(f"the hosts on core {core} have {total:g} of it together; give them 1 at most")
    return found

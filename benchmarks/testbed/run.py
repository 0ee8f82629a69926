"""Run plans on a testbed, as on hosts of a network: measure its cluster, then run what was planned for it.

    python benchmarks/testbed/run.py benchmarks/testbed/two.yaml probe -o cluster.yaml
    placewright plan py:my_models:net --cluster cluster.yaml -o plan.json
    python benchmarks/testbed/run.py benchmarks/testbed/two.yaml plan plan.json --model py:my_models:net --runs 20

What follows the plan goes to ``python -m placewright.execute``. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).absolute().parents[2]
sys.path[:0] = [str(ROOT)]

from benchmarks.testbed.description import Description, Host, read_testbed  # noqa: E402
from benchmarks.testbed.hosts import Testbed  # noqa: E402

from placewright.cluster import Cluster  # noqa: E402
from placewright.errors import ExecutionError, InvalidInput, PlacewrightError  # noqa: E402
from placewright.io import read_cluster, read_plan, write_cluster  # noqa: E402

PORT = 29500
ENDING_S = 3.0
LARGEST_BYTES = 1 << 20
"""Of the tensors that links are measured with: beyond it their time is straight."""


def main() -> int:
    """Read the command line, and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("testbed", type=Path)
    actions = parser.add_subparsers(dest="action", required=True)
    probing = actions.add_parser("probe", help="measure the hosts and their links, each within its share")
    probing.add_argument("-o", "--output", type=Path, required=True)
    planned = actions.add_parser("plan", help="run a plan")
    planned.add_argument("plan", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0, help="after which all is ended")
    options, rest = parser.parse_known_args()
    if options.action == "probe" and rest:
        parser.error(f"{rest[0]!r} is not known")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was made is removed then too
    try:
        description = read_testbed(options.testbed)
        if options.action == "probe":
            _probe(description, options.output.absolute(), options.minutes * 60)
        else:
            _plan(description, options.plan.absolute(), rest, options.minutes * 60)
    except PlacewrightError as error:
        sys.stderr.write(f"testbed: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _probe(description: Description, output: Path, longest_s: float) -> None:
    """Have the hosts measure each other, and write the cluster with the memory that the description gives them."""
    from placewright.execute.probe.link_fit import SIZES_BYTES

    sizes = [str(size) for size in SIZES_BYTES if size <= LARGEST_BYTES]
    with Testbed(description) as testbed:
        meeting = f"{testbed.address(description.hosts[0])}:{PORT}"
        count = len(description.hosts)
        commands = {
            host: [
                *(sys.executable, "-m", "benchmarks.testbed.probing"),
                *(meeting, str(rank), str(count), str(output), *sizes),
            ]
            for rank, host in enumerate(description.hosts)
        }
        _together(testbed, commands, longest_s)
    measured = read_cluster(output)
    memory = {h.name: h.memory_bytes for h in description.hosts}
    devices = [replace(d, memory_bytes=memory[d.host] or d.memory_bytes) for d in measured.devices]
    write_cluster(output, Cluster(devices, measured.links, name=measured.name))


def _plan(description: Description, plan: Path, rest: list[str], longest_s: float) -> None:
    """Start a torchrun on each host that the plan uses, as one would by hand."""
    file = read_plan(plan)
    used = [file.problem.cluster.devices[i] for i in file.plan.devices_used]
    host_of = {h.name: h for h in description.hosts}
    absent = [d.host for d in used if d.host not in host_of]
    if absent:
        raise InvalidInput(f"the plan uses the host {absent[0]!r}; the testbed has {', '.join(host_of)}")
    with Testbed(description) as testbed:
        hosts = [host_of[d.host] for d in used]
        if len(set(hosts)) < len(hosts):
            raise InvalidInput("the plan has two devices on one host; a host of a testbed is one device")
        commands = {
            host: [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(hosts)), "--node-rank", str(rank)),
                *("--nproc-per-node", "1", "--max-restarts", "0"),
                *("--master-addr", testbed.address(hosts[0]), "--master-port", str(PORT)),
                *("-m", "placewright.execute", str(plan), *rest),
            ]
            for rank, host in enumerate(hosts)
        }
        _together(testbed, commands, longest_s)


def _together(testbed: Testbed, commands: dict[Host, list[str]], longest_s: float) -> None:
    """Run a command on each host until all have ended, or one has failed."""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    processes = [testbed.start(host, command, environment=environment) for host, command in commands.items()]
    until = time.monotonic() + longest_s
    try:
        while any(p.poll() is None for p in processes):
            failed = [host.name for host, p in zip(commands, processes, strict=True) if p.poll()]
            if failed:
                time.sleep(ENDING_S)  # the others may say why
                raise ExecutionError(f"what ran on host {failed[0]!r} failed")
            if time.monotonic() > until:
                raise ExecutionError(f"it took longer than {longest_s:g} s; raise --minutes")
            time.sleep(0.1)
        failed = [host.name for host, p in zip(commands, processes, strict=True) if p.returncode]
        if failed:
            raise ExecutionError(f"what ran on host {failed[0]!r} failed")
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())

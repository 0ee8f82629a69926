"""The testbed of benchmarks/testbed, and what the benchmark that runs plans on it says of its measurements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.quality.execution_page import Case, compact, page
from benchmarks.testbed.description import Description, Host, read_testbed
from benchmarks.testbed.groups import Group
from benchmarks.testbed.hosts import Testbed, why_not

import placewright as pw
from placewright.errors import InvalidInput

TESTBEDS = Path(__file__).parents[1] / "benchmarks" / "testbed"
MEGABIT = 1e6 / 8
PAIR = Description((Host("a", 0), Host("b", 0, 0.25)), 100 * MEGABIT)


def test_described_testbeds_can_be_read() -> None:
    """Files that ship have two to four unlike hosts, each of which may be made on two cores."""
    for name, hosts in (("two", 2), ("three", 3), ("four", 4)):
        description = read_testbed(TESTBEDS / f"{name}.yaml")
        shares = [h.share for h in description.hosts]
        assert len(shares) == len(set(shares)) == hosts
        assert description.bandwidth_bytes_per_s == 1000 * MEGABIT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: [{name: a, core: 0}]\nbandwidth: 1 Gb/s", "1 hosts are not 2 to 16"),
        ("hosts: [{name: a, core: 0}, {name: a, core: 1}]\nbandwidth: 1 Gb/s", "two hosts have one name"),
        ("hosts: [{name: a, core: 0}, {name: b, core: 0, share: 0.5}]\nbandwidth: 1 Gb/s", "1.5 of it together"),
        ("hosts: [{name: a, core: 0}, {name: b, core: 0, share: 0}]\nbandwidth: 1 Gb/s", "share 0 is not between"),
        ("hosts: [{name: 'a;b', core: 0}, {name: b, core: x}]\nbandwidth: 1 Gb/s", "name 'a;b' is not a letter"),
        ("hosts: [{name: a, core: 0}, {name: b, core: 1}]\nbandwidth: fast", "fast"),
        ("hosts: [{name: a, core: 0}, {name: b, core: 1}]\nbandwidth: -1 Gb/s", "bandwidth"),
        ("hosts: 3", "it needs 'hosts'"),
        ("hosts: [", "can't be read as YAML"),
    ],
)
def test_what_is_no_testbed_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Names, cores, shares and bandwidths are checked before anything is made of them."""
    path = tmp_path / "bed.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_testbed(path)


def test_groups_hold_to_a_share(tmp_path: Path) -> None:
    """A quarter of a core is 1 ms of every 4 ms in the words of each kind of group; a whole one has no quota."""
    old, real, new = (tmp_path / kind for kind in ("old", "real", "new"))
    for root in (old, real):
        (root / "cpu").mkdir(parents=True)
        (root / "cpuset").mkdir()
    (real / "cpu" / "cpu.rt_runtime_us").write_text("950000")
    new.mkdir()
    (new / "cgroup.controllers").write_text("cpuset cpu io\n")
    quarter, whole = Host("b", 1, 0.25), Host("a", 1)
    assert Group("g", quarter, old).limits()[-2:] == [("cpu.cfs_period_us", "4000"), ("cpu.cfs_quota_us", "1000")]
    assert Group("g", quarter, real).limits()[-2:] == [("cpu.rt_period_us", "4000"), ("cpu.rt_runtime_us", "1000")]
    assert Group("g", quarter, new).limits()[-1] == ("cpu.max", "1000 4000")
    for root in (old, real, new):
        assert not [file for file, _ in Group("g", whole, root).limits() if "quota" in file or "max" in file]
        assert ("cpuset.cpus", "1") in Group("g", whole, root).limits()


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """Two hosts, 100 Mb/s apart, one of which has a quarter of a core; nothing is left of them afterwards."""
    if why_not():
        pytest.skip(why_not())
    made = Testbed(PAIR)
    with made:
        yield made
    named = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert made.name not in named
    assert not [folder for group in made.groups.values() for folder in group.folders if folder.exists()]


def _said(bed: Testbed, host: Host, code: str) -> str:
    process = bed.start(host, [sys.executable, "-S", "-E", "-c", code], stdout=subprocess.PIPE)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return said


def test_hosts_have_names_and_one_address(bed: Testbed) -> None:
    """A process sees its host's name, and no interface but the loopback and the link."""
    code = "import socket; print(socket.gethostname(), sorted(n for _, n in socket.if_nameindex()))"
    assert _said(bed, PAIR.hosts[1], code).strip() == "b ['eth0', 'lo']"


def test_a_host_gets_no_more_than_its_share(bed: Testbed) -> None:
    """However quiet the machine is, 0.1 s of computing takes at least about 0.4 s on a quarter of a core."""
    code = (
        "import time\n"
        "began = time.monotonic()\n"
        "while time.process_time() < 0.15: pass\n"
        "print(time.process_time() / (time.monotonic() - began))"
    )
    assert float(_said(bed, PAIR.hosts[1], code)) < 0.5


def test_a_link_carries_no_more_than_its_bandwidth(bed: Testbed) -> None:
    """However fast the machine is, 1 MB at 100 Mb/s takes 80 ms, less what a bucket holds."""
    where = f"('{bed.address(PAIR.hosts[0])}', 5001)"
    server = bed.start(
        PAIR.hosts[0],
        [
            *(sys.executable, "-S", "-E", "-c"),
            f"import socket\ns = socket.create_server({where}); print(flush=True)\n"
            "c, _ = s.accept(); n = 0\nwhile n < 10**6: n += len(c.recv(1 << 16))\nc.sendall(b'x')",
        ],
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    server.stdout.readline()
    code = (
        f"import socket, time\nc = socket.create_connection({where}); began = time.monotonic()\n"
        "c.sendall(bytes(10**6)); c.recv(1); print(time.monotonic() - began)"
    )
    assert float(_said(bed, PAIR.hosts[1], code)) > 0.070
    server.communicate(timeout=60)


def test_nothing_is_left_when_something_fails() -> None:
    """A testbed is removed with the processes on it when what uses it raises."""
    if why_not():
        pytest.skip(why_not())
    bed = Testbed(PAIR)
    with pytest.raises(ZeroDivisionError), bed:
        process = bed.start(PAIR.hosts[1], ["sleep", "60"])
        raise ZeroDivisionError
    assert process.wait(timeout=10) != 0
    assert not [folder for group in bed.groups.values() for folder in group.folders if folder.exists()]


def test_rivals_split_as_they_say() -> None:
    """Four operators of 1, 1, 1 and 5 bytes: two and two by layers; by memory of 1 to 1 the last one is alone."""
    pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")
    from benchmarks.quality.execution_rivals import ACCELERATE, ALONE, EQUAL, MEMORY, rivals

    module = torch.nn.Sequential(*(torch.nn.Linear(1, size, bias=False) for size in (1, 1, 1, 5)))
    operators = [pw.Operator(f"{k}", weight_bytes=4 * size) for k, size in enumerate((1, 1, 1, 5))]
    graph = pw.OperatorGraph(operators, [pw.Tensor(f"t{k}", k, (k + 1,), 4) for k in range(3)])

    def placed(memory_bytes: int) -> dict[str, list[int]]:
        devices = [pw.Device(name, memory_bytes=memory_bytes) for name in "ab"]
        cluster = pw.Cluster(devices, [pw.Link(1e-3, 1e9, link_class="same-host")])
        problem = pw.Problem(graph, cluster, [[1.0, 2.0]] * 4)
        return {name: places.tolist() for name, places in rivals(problem, module)}

    roomy = placed(1000)
    assert roomy[ALONE] == roomy[ACCELERATE] == [0, 0, 0, 0]
    assert roomy[EQUAL] == [0, 0, 1, 1]
    assert roomy[MEMORY] == [0, 0, 0, 1]
    tight = placed(28)  # 32 bytes of weights, and 8 of live tensors
    assert ALONE not in tight
    assert tight[MEMORY] == [0, 0, 0, 1]


def test_a_case_is_won_lost_or_within_noise() -> None:
    """Placewright's 10 to 12 ms against a rival at 5, at 10 to 11 and at 20 ms; the page counts each once."""
    pytest.importorskip("torch")  # whose release the page names
    plans = {name: {"predicted_s": 0.011, "device_of": [0, 1]} for name in ("placewright", "accelerate")}
    rows: dict[str, object] = {"testbed two": [["a", 0, 1.0], ["b", 1, 0.5]], "kept": plans}
    for network, other in (("slow", [0.005] * 3), ("even", [0.010, 0.0105, 0.011]), ("quick", [0.020] * 3)):
        rows[f"plans two|{network}|1 Gb/s|makespan"] = "kept"
        rows[f"runs two|{network}|1 Gb/s|makespan"] = {"placewright": [0.010, 0.011, 0.012], "accelerate": other}
    cases = [
        Case("two", key.split("|")[1], "1 Gb/s", "makespan", plans, runs)  # type: ignore[arg-type]
        for key, runs in rows.items()
        if key.startswith("runs ")
    ]
    assert [c.verdict for c in cases] == ["slower", "within noise", "fastest"]
    assert [c.hosts for c in cases] == [2, 2, 2]
    # (5 x 10.5 x 20)^(1/3) / 11 = 0.922
    assert "| makespan | two | 1 Gb/s | 3 | 1 | 1 | 1 | 0.0% | 0.92 |" in compact(cases)
    assert "| even | 1 Gb/s | 2 | 11.0 | 11.0 | 10.5 to 11.5 | +0.0% |" in page(rows, rounds=3, budget=1.0)

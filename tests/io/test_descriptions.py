"""Other programs' descriptions of machines as clusters.

The samples were written by hand after what these programs print: the matrix and legend of ``nvidia-smi topo -m``, the
attributes that ``src/graph/topo.cc`` of NCCL reads, and those of hwloc's ``hwloc2.dtd``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.cluster import Cluster, Link
from placewright.errors import InvalidInput
from placewright.io import cluster_from_text, cluster_to_text, read_description
from placewright.io.bounded_xml import parse_xml
from placewright.io.interconnects import cores_of_mask, nvlink_bytes_per_s, pcie_bytes_per_s

SAMPLES = Path(__file__).parent / "descriptions"
TOPO, NCCL, HWLOC = ((SAMPLES / name).read_text() for name in ("topo.txt", "nccl.xml", "hwloc.xml"))


def between(cluster: Cluster, a: str, b: str) -> tuple[float, str]:
    """GB/s and channel of the link from one device to another, and that it is the same back."""
    rule = cluster.rule_of[cluster.index[a], cluster.index[b]]
    assert rule == cluster.rule_of[cluster.index[b], cluster.index[a]] >= 0
    link: Link = cluster.links[rule]
    return round(link.bandwidth_bytes_per_s / 1e9, 6), link.channel


def read(folder: Path, text: str) -> tuple[Cluster, tuple[str, ...]]:
    (folder / "given").write_text(text)
    return read_description(folder / "given")


def test_the_matrix_of_nvidia_smi() -> None:
    """12 NVLinks x 20; two behind one bridge share the way to the processor; across, 6 GB/s on a channel."""
    cluster, notes = read_description(SAMPLES / "topo.txt")
    assert [d.name for d in cluster.devices] == ["cpu0", "cpu1", "gpu0", "gpu1", "gpu2", "gpu3"]
    assert cluster.devices[1].cores == (*range(16, 32), *range(48, 64))
    assert between(cluster, "gpu0", "gpu1") == (240.0, "")
    assert between(cluster, "gpu0", "gpu2") == (12.0, "")
    assert between(cluster, "gpu2", "gpu3") == between(cluster, "cpu1", "gpu0") == (6.0, "processors 0-1")
    assert between(cluster, "gpu0", "cpu0") == between(cluster, "gpu2", "cpu0") == (12.0, "bridge GPU0")
    assert between(cluster, "gpu3", "cpu1") == (12.0, "")
    assert "does not say which GPUs" in notes[0]
    assert cluster_from_text(cluster_to_text(cluster)) == cluster


def test_spaces_and_missing_columns_are_read_too(tmp_path: Path) -> None:
    """A copy whose tabs became spaces, and an older driver's without the last columns."""
    cluster, _ = read(tmp_path, TOPO.replace("\t", "   "))
    assert cluster == read_description(SAMPLES / "topo.txt")[0]
    older = "        GPU0    GPU1    CPU Affinity\nGPU0     X      PHB     N/A\nGPU1    PHB      X      N/A\n"
    cluster, _ = read(tmp_path, older)
    assert [d.name for d in cluster.devices] == ["cpu0", "gpu0", "gpu1"] and cluster.devices[0].cores == ()
    assert between(cluster, "gpu0", "gpu1") == between(cluster, "gpu0", "cpu0") == (12.0, "")


def test_nccl_topology() -> None:
    """Switches: the fewer of 9 and 10 NVLinks x 20.6; direct: 12 x 20. Generation 5 behind a bridge of generation 4."""
    cluster, _ = read_description(SAMPLES / "nccl.xml")
    assert [d.name for d in cluster.devices] == ["cpu0", "cpu1", "gpu0", "gpu1", "gpu2", "gpu3"]
    assert cluster.devices[0].cores == tuple(range(16)) and cluster.devices[1].cores == tuple(range(32, 48))
    assert between(cluster, "gpu0", "gpu1") == (9 * 20.6, "")
    assert between(cluster, "gpu2", "gpu3") == (240.0, "")
    assert between(cluster, "gpu0", "cpu0") == (24.0, "bridge 0000:45:00.0")
    # Without a speed: generation 3, 16 lanes; then the same with 8 lanes.
    assert between(cluster, "gpu2", "cpu1") == (12.0, "") and between(cluster, "gpu3", "cpu1") == (6.0, "")
    assert between(cluster, "gpu0", "gpu2") == (12.0, "processors 0-1")
    assert between(cluster, "cpu0", "cpu1") == between(cluster, "cpu1", "gpu1") == (16.0, "processors 0-1")
    network = cluster.links[-1]
    assert (network.link_class, network.bandwidth_bytes_per_s, network.channel) == ("between-hosts", 25e9, "nic")


def test_hwloc_topology() -> None:
    """The card that is in the catalogue has its figures; the one that only displays is left out."""
    cluster, notes = read_description(SAMPLES / "hwloc.xml")
    assert [d.name for d in cluster.devices] == ["cpu0", "cpu1", "gpu0", "gpu1"]
    assert {d.host for d in cluster.devices} == {"box"}
    assert [d.memory_bytes for d in cluster.devices] == [2**36, 2**35, 24 * 2**30, None]
    assert cluster.devices[2].model == "rtx-3090" and cluster.devices[1].cores == (2, 3)
    assert between(cluster, "gpu0", "cpu0") == (24.0, "bridge 0000:00:01.0")
    assert between(cluster, "gpu0", "gpu1") == (12.0, "")
    assert between(cluster, "cpu0", "cpu1") == between(cluster, "cpu1", "gpu0") == (10.0, "processors 0-1")
    assert notes[1:] == (
        "hwloc tells of no NVLinks; add the links between GPUs that have them",
        "gpu1: not in the catalogue; give the 'model' in the cluster file",
    )


BOMB = '<!DOCTYPE system [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><system><cpu vendor="&b;"/></system>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is neither what 'nvidia-smi topo -m' prints nor topology XML"),
        (TOPO.replace("GPU2\tPXB", "GPUX\tPXB"), "there is no row for GPU2"),
        (
            TOPO.replace("GPU1\tNV12\t X \tPXB\tSYS\tSYS\t0-15,32-47\t0\t\tN/A", "GPU1\tNV12"),
            "row GPU1 has 1 cells, not",
        ),
        (TOPO.replace("SYS\tPIX", "FAR\tPIX"), "row GPU0, column GPU3: 'FAR' is not X, NV# or one of PIX, PXB, PHB"),
        (TOPO.replace("GPU1\tNV12", "GPU1\tNV4"), "rows GPU0 and GPU1 say NV12 and 'NV4' of the same two"),
        (TOPO.replace("0-15,32-47", "0-15,99999999999-3"), "99999999999"),
        ("<system", "is not valid XML: unclosed token at line 1"),
        ("<system/>", "has 0 GPUs and 0 processors; 1 GPU to 512 devices can be read"),
        ("<plan/>", "is XML of a 'plan'; a 'system' of NCCL and a 'topology' of hwloc can be read"),
        ("<topology/>", "has 0 NUMA nodes and 0 GPUs"),
        (BOMB, "declares entities or a document type of its own; remove the declaration"),
        ("<a>" * 101 + "</a>" * 101, "has more than 200000 elements or 100 levels"),
        (NCCL.replace('dev="1" sm', 'dev="0" sm'), "device 'gpu0' stands twice"),
        (NCCL.replace("0000:54:00.0", "0000:53:00.0"), "two GPUs have the same busid; each has its own"),
        (NCCL.replace('sm="90"', 'sm="new"'), "gpu: sm 'new' is not a whole number of at least 0"),
        (NCCL.replace("00000000,0000ffff", "0-15"), "'0-15' is no mask of cores"),
        ('<system><gpu dev="7"/></system>', "GPU '7' stands in no pci element of a cpu"),
        (HWLOC.replace("0x00000003", "0xf...f"), "'0xf...f' is no mask of cores"),
        (HWLOC.replace("68719476736", "much"), "local_memory 'much' is not a number of bytes below 10^15"),
        (HWLOC.replace("15.753846", "nan"), "pci_link_speed 'nan' is not a number of GB/s"),
    ],
)
def test_what_is_wrong_with_a_description_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    """Of each kind: the file, the thing, the value, the limit."""
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)
    assert message in str(caught.value) and "\n" not in str(caught.value) and "given" in str(caught.value)


@given(st.sampled_from([TOPO, NCCL, HWLOC]), st.integers(0, 4000), st.integers(0, 40), st.text(max_size=5))
def test_damaged_descriptions_are_read_or_refused(text: str, at: int, length: int, instead: str) -> None:
    """A piece of a sample replaced by anything: never another error than ours."""
    from placewright.io.any_description import _described

    try:
        described = _described((text[:at] + instead + text[at + length :]).encode(errors="replace"), "damaged")
        Cluster(described.devices, described.links)
    except InvalidInput:
        pass


@given(st.sets(st.integers(0, 200)))
def test_masks_are_read_as_linux_writes_them(cores: set[int]) -> None:
    """Words of 32 bits, highest first, with and without 0x."""
    value = sum(1 << k for k in cores)
    words = [f"{value >> 32 * k & 0xFFFFFFFF:08x}" for k in reversed(range(7))]
    assert cores_of_mask(",".join(words)) == cores_of_mask(",".join(f"0x{w}" for w in words)) == tuple(sorted(cores))


def test_figures_that_descriptions_leave_to_the_reader() -> None:
    """Of NCCL: PCIe by generation and lanes, NVLinks by compute capability."""
    rates = [
        pcie_bytes_per_s(speed, "16") / 1e9 for speed in ("2.5 GT/s", "8 GT/s", "16.0 GT/s PCIe", "32.0 GT/s PCIe")
    ]
    assert rates == [3.0, 12.0, 24.0, 48.0]
    assert [nvlink_bytes_per_s(sm) / 1e9 for sm in (60, 75, 80, 86, 89, 90, 103)] == [18, 20, 20, 12, 20, 20.6, 40.1]


def test_elements_know_what_they_stand_in() -> None:
    """Walking goes by the order of the file; ancestors from the inside out."""
    root = parse_xml(b"<a><b><c/></b><d/></a>", "example")
    assert [e.tag for e in root.walk()] == ["a", "b", "c", "d"]
    assert [e.tag for e in root.children[0].children[0].ancestors()] == ["b", "a"]

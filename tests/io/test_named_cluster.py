"""A cluster in a word: devices of the catalogue joined by ``+``."""

from __future__ import annotations

from pathlib import Path

import pytest

from placewright.errors import InvalidInput
from placewright.io import read_cluster
from placewright.io.named_cluster import assumed_of, cluster_text


def test_devices_of_the_catalogue_are_one_pc() -> None:
    """Two GPUs and RAM: numbered names, the catalogue's memory less 1 GiB, and 12 GB/s between any two."""
    cluster = read_cluster("rtx-3090+RTX 3060 12GB+64GiB")
    assert [d.name for d in cluster.devices] == ["gpu0", "gpu1", "cpu"]
    assert [d.capacity_bytes / 2**30 for d in cluster.devices] == [23, 11, 64]
    assert cluster.transfer_s(12 * 10**9, 0, 1) == pytest.approx(1.000015)
    assert len({d.host for d in cluster.devices}) == 1


def test_equal_names_stand_for_devices_of_their_own() -> None:
    """The same entry twice is two devices; a second CPU has a number."""
    cluster = read_cluster("rtx-4090+rtx-4090+8GiB+ryzen-9-5950x")
    assert [d.name for d in cluster.devices] == ["gpu0", "gpu1", "cpu", "cpu1"]


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there as a file is read as one."""
    monkeypatch.chdir(tmp_path)
    Path("rtx-3090").write_text("devices: [{name: mine}]")
    assert [d.name for d in read_cluster("rtx-3090").devices] == ["mine"]
    assert assumed_of("rtx-3090") == ""


def test_what_is_assumed_is_said() -> None:
    """A named cluster tells its link, what is kept free, and its RAM where it has some; a file tells nothing."""
    assert "12 GB/s and 15 us between its devices, 1 GiB of each accelerator kept free; " in assumed_of("rtx-3090+t4")
    assert "free, RAM of 50 GB/s" in assumed_of("rtx-3090+64GiB")
    assert assumed_of("box.yaml") == ""


def test_an_unknown_name_among_known_ones_gets_the_closest() -> None:
    """A slip of the pen is no missing file; without any known name it is one."""
    with pytest.raises(InvalidInput, match="did you mean 'rtx-3090'"):
        read_cluster("rtx-3900+rtx-4090")
    with pytest.raises(InvalidInput, match=r"cluster file 'nowhere\.yaml'"):
        read_cluster("nowhere.yaml")
    with pytest.raises(InvalidInput, match="65 devices are more than the 64"):
        cluster_text("+".join(["t4"] * 65))

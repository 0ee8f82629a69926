"""The hardware catalogue: its figures, how entries are found, and what a user's own file may do."""

import math
from pathlib import Path

import pytest

from placewright import catalogue
from placewright.cluster import Cluster
from placewright.costs.roofline import effective_peak
from placewright.errors import InvalidInput

OWN = """
launch_overhead: {fpga: {value: 40 us, source: measured}}
devices:
  My Card: {vendor: me, kind: gpu, flops: {fp32: 2 TFLOP/s}, memory_bandwidth: 100 GB/s, source: s, date: "2024"}
  board: {vendor: me, kind: fpga, memory: 4 GiB, flops: {int8: 1}, memory_bandwidth: 9 GB/s, source: s, date: ""}
  rtx-3090: {vendor: me, kind: gpu, flops: {fp32: 1 TFLOP/s}, memory_bandwidth: 1 GB/s, source: s, date: "2024"}
"""


@pytest.fixture(autouse=True)
def no_user_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(catalogue.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


def own_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    return path


def test_every_shipped_entry_is_a_usable_device_with_its_provenance() -> None:
    """A cluster of one device of each of 70 entries is valid, each entry can be costed in fp32 and says its source."""
    entries = catalogue.load()
    devices = Cluster([e.device(f"d{k}") for k, e in enumerate(entries.values())]).devices
    assert len(devices) >= 70
    for entry, device in zip(entries.values(), devices, strict=True):
        assert device.model == entry.model
        assert effective_peak(device, "fp32") > 0 and device.memory_bandwidth_bytes_per_s > 0
        assert device.launch_overhead_s > 0
        assert entry.source and entry.date[:4].isdigit()


@pytest.mark.parametrize(
    ("model", "dtype", "tflops", "memory_gib", "gb_per_s"),
    [
        ("rtx-3090", "fp32", 35.6, 24, 936),
        ("a100-sxm-80gb", "bf16", 312, 80, 2039),
        ("h100-sxm-80gb", "fp8", 1979, 80, 3350),
        ("t4", "int8", 130, 16, 320),
    ],
)
def test_figures_are_the_datasheets_dense_ones(
    model: str, dtype: str, tflops: float, memory_gib: int, gb_per_s: float
) -> None:
    """Some entries against the vendors' datasheets, typed here a second time."""
    entry = catalogue.lookup(model)
    assert entry.flops_per_s[dtype] == pytest.approx(tflops * 1e12)
    assert entry.memory_bytes == memory_gib * 2**30
    assert entry.memory_bandwidth_bytes_per_s == pytest.approx(gb_per_s * 1e9)


def test_there_are_devices_of_every_sort() -> None:
    """GPUs of three makers for data centres and for desks, Apple's, CPUs of three makers, NPUs and boards."""
    entries = catalogue.load().values()
    makers = {kind: {e.vendor for e in entries if e.kind == kind} for kind in ("gpu", "cpu", "npu")}
    assert makers["gpu"] >= {"NVIDIA", "AMD", "Intel", "Apple"}
    assert makers["cpu"] >= {"AMD", "Intel", "Ampere", "Raspberry Pi"}
    assert makers["npu"] >= {"AMD", "Intel", "Google", "Amazon", "Qualcomm"}


def test_peaks_are_units_times_clock_times_a_power_of_two() -> None:
    """An independent check of every GPU that states its clock and units: FLOP per unit and cycle are 2^k within 2 %.

    Figures given at two clocks are named: H100 and H200 (fp32 at 1.98 GHz, tensor cores at 1.83) and the B580 (its
    matrix engines' peak is at a clock of 2.85 GHz).
    """
    two_clocks = {("h100-sxm-80gb", "fp32"), ("h200-sxm", "fp32"), ("arc-b580", "fp16")}
    seen = 0
    for entry in catalogue.load().values():
        if entry.kind != "gpu" or not entry.clock_hz or not entry.compute_units:
            continue
        for dtype in {"fp32", "fp16"} & entry.flops_per_s.keys():
            exponent = math.log2(entry.flops_per_s[dtype] / entry.clock_hz / entry.compute_units)
            near = abs(2 ** (exponent - round(exponent)) - 1) <= 0.02
            assert near or (entry.model, dtype) in two_clocks, (entry.model, dtype, 2**exponent)
            seen += near
    assert seen >= 60


@pytest.mark.parametrize("dtype_pair", [("fp32", "fp16"), ("fp16", "fp8"), ("bf16", "int8")])
def test_no_peak_is_a_sparse_one_by_mistake(dtype_pair: tuple[str, str]) -> None:
    """A narrower dtype is never slower than a wider one, which a sparse figure for the wider one would make it."""
    wide, narrow = dtype_pair
    for entry in catalogue.load().values():
        if wide in entry.flops_per_s and narrow in entry.flops_per_s:
            assert entry.flops_per_s[narrow] >= entry.flops_per_s[wide], entry.model


def test_a_name_is_found_whatever_its_case_and_separators() -> None:
    """The names that people write lead to the same entry."""
    assert catalogue.lookup("RTX 3090") is catalogue.lookup("rtx_3090") is catalogue.lookup("rtx-3090")


def test_an_unknown_name_is_answered_with_close_ones_and_the_way_out() -> None:
    """The error is one line with the value, near names and the remedy."""
    with pytest.raises(InvalidInput) as caught:
        catalogue.lookup("rtx-3900")
    message = str(caught.value)
    assert "'rtx-3900'" in message and "'rtx-3090'" in message and "flops" in message and "\n" not in message


def test_overrides_replace_figures_and_merge_peaks() -> None:
    """A device keeps the entry's other peaks when one dtype is overridden."""
    device = catalogue.lookup("t4").device("g", host="h", reserve_bytes=5, flops_per_s={"fp32": 7.0})
    assert (device.host, device.reserve_bytes, device.flops_per_s["fp32"]) == ("h", 5, 7.0)
    assert device.flops_per_s["int8"] == pytest.approx(130e12)


def test_an_override_that_is_no_field_is_refused() -> None:
    """A misspelt field is named together with those that exist."""
    with pytest.raises(InvalidInput, match=r"no field 'memory'.*memory_bytes"):
        catalogue.lookup("t4").device("g", memory=3)


def test_a_users_file_adds_and_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own entries are found by argument and by environment, override shipped ones, and use defaults by kind."""
    path = own_file(tmp_path, OWN)
    assert catalogue.lookup("my-card", path).launch_overhead_s == catalogue.lookup("t4").launch_overhead_s
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(path))
    assert catalogue.lookup("rtx-3090").flops_per_s["fp32"] == 1e12
    assert catalogue.lookup("board").launch_overhead_s == pytest.approx(40e-6)
    assert catalogue.lookup("t4").vendor == "NVIDIA"


def test_a_catalogue_in_the_users_folder_is_found_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``catalogue.yaml`` of the configuration folder counts without being named; the environment comes before it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert catalogue.find("my card") is None
    folder = tmp_path / "placewright"
    folder.mkdir()
    (folder / "catalogue.yaml").write_text(OWN)
    found = catalogue.find("my card")
    assert found is not None and found.vendor == "me"
    monkeypatch.setenv(catalogue.ENVIRONMENT, str(own_file(tmp_path, "devices: {}")))
    assert catalogue.find("my card") is None and catalogue.find("") is None


def test_an_entry_may_state_clock_units_cache_and_what_a_calibration_found(tmp_path: Path) -> None:
    """All of it arrives in SI units."""
    text = OWN.replace("source: s,", "clock_mhz: 1500, compute_units: 8, cache: 2 MiB, source: s,", 1)
    text = text.replace('date: "2024"}', 'date: "2024", efficiency: {product: {arithmetic: 0.5}}}', 1)
    entry = catalogue.lookup("my card", own_file(tmp_path, text))
    assert (entry.clock_hz, entry.compute_units, entry.cache_bytes) == (1.5e9, 8, 2 * 2**20)
    assert entry.efficiency["product"]["arithmetic"] == 0.5
    assert catalogue.lookup("board", own_file(tmp_path, text)).efficiency == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("devices: {a: {vendor: x}}", "entry 'a': object missing required field"),
        ("devices: [", "no valid catalogue"),
        ("devices: &a {}\nlaunch_overhead: *a\n", "alias"),
        ("[" * 100_000, "nested deeper than 8"),
        ("nonsense: 1", "unknown field"),
        (
            OWN.replace("source: s,", "clock_mhz: -1, source: s,", 1),
            "entry 'My Card': clock_mhz: expected `float` > 0.0;",
        ),
        (OWN.replace("source: s,", "units: 8, source: s,", 1), "'My Card': object contains unknown field `units`;"),
        (OWN.replace("source: s,", "note: 3, source: s,"), r"'My Card': note: .*; entry 'board': note: "),
        (OWN.replace("source: s,", "cache: big, source: s,", 1), "cache 'big'"),
        (OWN.replace("source: s,", "efficiency: {products: {arithmetic: 1}}, source: s,", 1), "`products`"),
        (OWN.replace("source: s,", "efficiency: {other: {speed: 1}}, source: s,", 1), "`speed`"),
        (OWN.replace("2 TFLOP/s", "fast").replace("4 GiB", "-4 GiB"), r"'My Card': flops fp32.*'board': memory"),
    ],
)
def test_a_bad_file_ends_in_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    """Schema, syntax, aliases, deep nesting and bad units are refused by name; all bad entries are reported."""
    with pytest.raises(InvalidInput, match=says) as caught:
        catalogue.load(own_file(tmp_path, text))
    assert "\n" not in str(caught.value) and "own.yaml" in str(caught.value)


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    """An unreadable path and a file above the limit don't get as far as the parser."""
    with pytest.raises(InvalidInput, match="can't be read"):
        catalogue.load(tmp_path / "absent.yaml")
    with pytest.raises(InvalidInput, match="larger than"):
        catalogue.load(own_file(tmp_path, "#" * (catalogue.LARGEST_FILE_BYTES + 1)))

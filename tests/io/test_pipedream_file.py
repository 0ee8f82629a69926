"""Profiles of PipeDream: two operators a layer, and what is wrong with a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device
from placewright.errors import InvalidInput
from placewright.io import read_pipedream, speeds_of
from tests.workloads import workload, workloads

LINE = "{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}"
# An input, and two branches that meet: the second reads a list of tensors.
FORK = "\n".join(
    [
        LINE.format("node2", "Conv2d(3, 8)", "2.000", "4.000", "80.000", "12.000"),
        LINE.format("node1", "Input0", "1.500", "0.000", "[8.0; 4.5]", "0.000") + " -- stage_id=0",
        LINE.format("node3", "ReLU -- in place", "3.000", "5.000", "70", "0"),
        "\tnode1 -- node2",
        "\tnode1 -- node3",
        "\tnode2 -- node3",
        "",
    ]
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "net.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_layers_for_training(tmp_path: Path) -> None:
    """Forward and backward operators share a device; activations go one way, gradients of their size the other."""
    profile = read_pipedream(written(tmp_path, FORK))
    graph = profile.graph
    rows = [
        (v.name, v.kind, v.weight_bytes, v.backward, s) for v, s in zip(graph.operators, profile.time_s, strict=True)
    ]
    assert rows == [
        ("node1", "Input0", 0, False, pytest.approx(0.0015)),
        ("node2", "Conv2d(3, 8)", 12, False, pytest.approx(0.002)),
        ("node3", "ReLU -- in place", 0, False, pytest.approx(0.003)),
        ("node1.backward", "Input0", 0, True, 0.0),
        ("node3.backward", "ReLU -- in place", 0, True, pytest.approx(0.005)),
        ("node2.backward", "Conv2d(3, 8)", 0, True, pytest.approx(0.004)),
    ]
    assert graph.colocation == ((0, 3), (1, 5), (2, 4))
    names = [v.name for v in graph.operators]
    tensors = {t.name: (names[t.producer], [names[v] for v in t.readers], t.size_bytes) for t in graph.tensors}
    assert tensors == {
        "node1": ("node1", ["node2", "node3", "node1.backward"], 13),  # 8 + 4.5, rounded up
        "node2": ("node2", ["node3", "node2.backward"], 80),
        "node3": ("node3", ["node3.backward"], 70),
        "node2.gradient@node3": ("node3.backward", ["node2.backward"], 80),
    }
    assert graph.name == "net" and graph.source is not None and len(graph.source.sha256) == 64


def test_layers_for_inference(tmp_path: Path) -> None:
    """The forward half alone."""
    graph = read_pipedream(written(tmp_path, FORK), inference=True).graph
    assert [v.name for v in graph.operators] == ["node1", "node2", "node3"] and graph.colocation == ()
    assert [(t.name, t.readers) for t in graph.tensors] == [("node1", (1, 2)), ("node2", (2,))]


def test_times_on_unlike_devices(tmp_path: Path) -> None:
    """Half the speed is twice the time; the source says what was assumed."""
    profile = read_pipedream(written(tmp_path, FORK), inference=True)
    cluster = Cluster([Device("a"), Device("b")])
    times = profile.times_on(cluster, {"b": 0.5})
    np.testing.assert_allclose(times.processing_s, [[0.0015, 0.003], [0.002, 0.004], [0.003, 0.006]])
    assert times.source == "given, milliseconds assumed; speed a=1, b=0.5"
    assert profile.times_on(cluster, {}).source == (
        "given, milliseconds assumed; every device as fast as the profiled one"
    )


GOOD = LINE.format("a", "b", 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no layers; a layer is a line such as 'node1 -- Conv2d -- forward_compute_time=...'"),
        ("node1 -- Conv2d", "line 1: 'node1 -- Conv2d' is no layer; write for example 'node1 -- Conv2d -- forward"),
        (f"{GOOD}\n\ta", "line 2: 'a' is no edge; write for example a tab and 'node1 -- node2'"),
        (f"{GOOD}\n\ta -- a1", "line 2: there is no layer 'a1'; did you mean 'a'?"),
        (f"{GOOD}\n\ta -- a", "line 2: 'a' can't read its own output; remove the line"),
        (f"{GOOD}\n\n{GOOD}", "line 3: 'a' was a layer in line 1 already; keep one"),
        (
            LINE.format("a", "b", -1, 2, 3, 4),
            "line 1: forward_compute_time '-1' is not a number between 0 and 1e+15 ms",
        ),
        (LINE.format("a", "b", 1, "nan", 3, 4), "line 1: backward_compute_time 'nan' is not a number between"),
        (LINE.format("a", "b", 1, "inf", 3, 4), "line 1: backward_compute_time 'inf' is not a number between"),
        (LINE.format("a", "b", "1e99", 2, 3, 4), "line 1: forward_compute_time '1e99' is not a number between"),
        (
            LINE.format("a", "b", 1, 2, "[3; x]", 4),
            "line 1: activation_size '[3; x]' is not a number of bytes between 0",
        ),
        (LINE.format("a", "b", 1, 2, "[]", 4), "line 1: activation_size '[]' is not a number of bytes"),
        (LINE.format("a", "b", 1, 2, 3, "1e18"), "line 1: parameter_size '1e18' is not a number of bytes"),
        ("\ta -- b", "line 1: there is no layer 'a'; add it"),
        (b"\xff\xfe", "is not UTF-8 text; save it as UTF-8"),
        (f"{GOOD}\n{GOOD.replace('a', 'c', 1)}\n\ta -- c\n\tc -- a", "the operators form a cycle: "),
    ],
)
@pytest.mark.parametrize("inference", [False, True])
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str | bytes, complaint: str, inference: bool) -> None:
    """Each names the file, the line, the value and the limit."""
    path = written(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        read_pipedream(path, inference=inference)
    message = str(caught.value)
    assert message.startswith(f"profile {str(path)!r}: ") and complaint in message and "\n" not in message


def test_many_faults_are_cut_short(tmp_path: Path) -> None:
    """Twenty are named, and that there are more."""
    with pytest.raises(InvalidInput) as caught:
        read_pipedream(written(tmp_path, "x\n" * 1000))
    assert len(caught.value.violations) == 21 and caught.value.violations[-1] == "and there are more like these"


@settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(0, len(FORK)), st.integers(0, 12), st.text(max_size=8) | st.sampled_from(["\t", "\n", " -- ", "[;]"])
)
def test_nothing_in_a_file_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: int, noise: str
) -> None:
    """A file with a piece replaced by anything: a profile, or one line."""
    path = written(tmp_path_factory.mktemp("noise"), (FORK[:at] + noise + FORK[at + cut :]).encode("utf-8", "ignore"))
    try:
        read_pipedream(path)
    except InvalidInput as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["a"], "--speed 'a' is not PATTERN=FACTOR; write for example --speed 'gpu[1-2]=0.5'"),
        (["=1"], "--speed '=1' is not PATTERN=FACTOR"),
        (["a=0"], "--speed 'a=0': the speed '0' is not a number above 0"),
        (["a=-1"], "the speed '-1' is not a number above 0"),
        (["a=nan"], "the speed 'nan' is not a number above 0"),
        (["a=1e300"], "the speed '1e300' is not a number above 0"),
        (["c=1"], "--speed 'c=1': no device is named 'c'; use one of a, b"),
        (["g[5-1]=1"], "goes backwards"),
    ],
)
def test_speeds_that_are_refused(texts: list[str], complaint: str) -> None:
    """Each names the option and the value."""
    with pytest.raises(InvalidInput) as caught:
        speeds_of(texts, Cluster([Device("a"), Device("b")]))
    assert complaint in str(caught.value)


def test_speeds_by_pattern() -> None:
    """A name, ranges beyond one digit, wildcards; later ones override."""
    cluster = Cluster([Device(f"g{k}") for k in (1, 9, 10, 11)])
    assert speeds_of(["g*=2", "g[9-10]=0.25", "g11=1"], cluster) == {"g1": 2.0, "g9": 0.25, "g10": 0.25, "g11": 1.0}
    assert speeds_of([], cluster) == {}


@pytest.mark.parametrize("name", workloads("pipedream/*.txt"))
def test_the_published_profiles(name: str) -> None:
    """Times and weights of all lines add up, two operators a layer."""
    path = workload(name)
    lines = [line for line in path.read_text().splitlines() if line.startswith("node")]

    def total(key: str) -> float:
        return sum(float(line.partition(f"{key}=")[2].split(",")[0].split(" ")[0]) for line in lines)

    for inference in (False, True):
        profile = read_pipedream(path, inference=inference)
        assert len(profile.graph) == len(lines) * (1 if inference else 2)
        expected = total("forward_compute_time") + (0 if inference else total("backward_compute_time"))
        assert profile.time_s.sum() == pytest.approx(expected * 1e-3)
        assert sum(v.weight_bytes for v in profile.graph.operators) == pytest.approx(total("parameter_size"))

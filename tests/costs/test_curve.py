"""The efficiency curves: closed forms, the fit on curves that are known, and published kernel times."""

from dataclasses import fields

import numpy as np
import pytest
from benchmarks.quality.kernel_measurements import MODELS, attention_work, measured, product_work
from hypothesis import given
from hypothesis import strategies as st

from placewright.costs.curve import CLASSES, Curve, Figures, Work, curves_of
from placewright.costs.curve_fit import SHAPE, Measured, fit_curve

CARD = Figures(1e12, 1e11, clock_hz=1e9, compute_units=10, cache_bytes=1e6)


def work(flops: float = 0, traffic: float = 0, depth: float = 0, pieces: float = 0) -> Work:
    return Work(*(np.array([x], dtype=float) for x in (flops, traffic, depth, pieces)))


@pytest.mark.parametrize(
    ("curve", "asked", "seconds"),
    [
        (Curve(), work(2e9, 1e8), 2e-3),  # max(2 ms, 1 ms)
        (Curve(arithmetic=0.5, memory=0.1), work(2e9, 1e8), 10e-3),  # max(4 ms, 10 ms)
        (Curve(sharpness=2), work(3e9, 4e8), 5e-3),  # a right angle: 3, 4, 5
        (Curve(floor_cycles=7000), work(), 7e-6),
        (Curve(depth_cycles=100), work(depth=128 * 9), 0.3e-6),  # 100 sqrt(9) cycles of 1 ns
        (Curve(piece_cycles=50), work(pieces=40), 0.2e-6),  # 50 * 40 / 10 cycles
        (Curve(cached_gain=3, cached_share=1), work(traffic=1e8), 1e-3),  # 100 times the cache: nothing gained
        (Curve(cached_gain=3, cached_share=1), work(traffic=1e3), 2.5e-9),  # a thousandth of it: 1 + 3 times as fast
    ],
)
def test_each_term_alone(curve: Curve, asked: Work, seconds: float) -> None:
    """One operator at a time against the formula worked by hand."""
    assert curve.seconds(asked, CARD, warm=True)[0] == pytest.approx(seconds, rel=1e-6)


def test_cold_work_gains_nothing_from_a_cache_and_a_given_floor_replaces_the_curves() -> None:
    """What networks are costed with: no warm cache, and the device's own launch overhead."""
    curve = Curve(cached_gain=3, floor_cycles=1000)
    assert curve.seconds(work(traffic=1e3), CARD)[0] == pytest.approx(1e-6 + 1e-8)
    assert curve.seconds(work(traffic=1e3), CARD, floor_s=0.5)[0] == pytest.approx(0.5 + 1e-8)


@given(
    st.floats(1e3, 1e14), st.floats(1e3, 1e11), st.floats(1, 1e6), st.floats(1, 3), st.sampled_from(["gpu", "cpu", "x"])
)
def test_more_work_never_takes_less_time(flops: float, traffic: float, depth: float, factor: float, kind: str) -> None:
    """Every shipped curve grows with FLOPs, bytes and depth, and no time is below the roofline of full peaks."""
    for name in CLASSES:
        curve = curves_of(kind)[name]
        base = curve.seconds(work(flops, traffic, depth), CARD)[0]
        assert base >= 0.99 * max(flops / 1e12, traffic / 1e11)
        for more in (
            (factor * flops, traffic, depth),
            (flops, factor * traffic, depth),
            (flops, traffic, factor * depth),
        ):
            assert curve.seconds(work(*more), CARD)[0] >= base * (1 - 1e-12)


def test_the_fit_finds_the_curve_that_made_the_times() -> None:
    """Three devices with floors of their own: shape and floors come back from a start that is far off."""
    rng = np.random.default_rng(0)
    m, n, k = (2.0 ** rng.integers(3, 13, 400) for _ in range(3))
    true = Curve(0.75, 0.85, 2.5, 0.0, 700.0)
    devices = [Figures(p, b, c) for p, b, c in ((3e14, 2e12, 1.4e9), (9e14, 3e12, 1.8e9), (1e14, 5e11, 2.4e9))]
    floors = (4000.0, 6000.0, 50_000.0)
    jobs = product_work(m, n, k)
    seen = [
        Measured(jobs, d, true.seconds(jobs, d, floor_s=f / d.clock_hz)) for d, f in zip(devices, floors, strict=True)
    ]
    start = Curve(0.5, 0.5, 1.5, 10_000.0, 100.0)
    found, own = fit_curve(start, seen, free=("arithmetic", "memory", "sharpness", "depth_cycles"))
    assert (found.arithmetic, found.memory, found.depth_cycles) == pytest.approx((0.75, 0.85, 700), rel=1e-3)
    assert own == pytest.approx(floors, rel=1e-3) and found.floor_cycles == pytest.approx(6000, rel=1e-3)


def test_a_tenth_of_wild_outliers_hardly_moves_the_fit() -> None:
    """Robustness: 10 % of the times are ten times too long, and the efficiency moves by less than 5 %."""
    size = 10.0 ** np.linspace(6, 12, 200)
    jobs = Work(size, size / 1e3, np.zeros(200), np.zeros(200))
    seconds = Curve(0.7, 0.8, floor_cycles=5000).seconds(jobs, CARD)
    seconds[::10] *= 10
    found, _ = fit_curve(Curve(floor_cycles=1000), [Measured(jobs, CARD, seconds)], free=("arithmetic",))
    assert found.arithmetic == pytest.approx(0.7, rel=0.05)


def test_causal_attention_is_counted_pair_by_pair() -> None:
    """3 new tokens after 2 old ones see 3 + 4 + 5 = 12 pairs; one head of width 8 multiplies 2 * 2 * 8 FLOP a pair."""
    one = [np.array([x], dtype=float) for x in (1, 3, 2, 1, 1, 8)]
    made = attention_work(*one)
    assert made.flops[0] == 12 * 32
    assert made.traffic_bytes[0] == 2 * 8 * (3 + 3 + 5 + 5)  # Q and result of 3 tokens, K and V of 5


def test_a_shipped_curve_names_no_field_twice_and_covers_every_class() -> None:
    """What a catalogue's correction may name is exactly what a curve has."""
    from placewright.catalogue import Correction, Efficiency

    assert Correction.__struct_fields__ == tuple(f.name for f in fields(Curve))
    assert Efficiency.__struct_fields__ == CLASSES
    assert set(curves_of("nobody knows")) == set(CLASSES)


@pytest.mark.parametrize(("family", "fitted", "unseen"), [("product", 0.18, 0.20), ("prefill", 0.17, 0.23)])
def test_published_kernels_are_predicted_also_for_a_gpu_that_was_not_fitted(
    family: str, fitted: float, unseen: float
) -> None:
    """Median errors of the shipped curve, and of curves fitted to three GPUs on the fourth, from its datasheet."""
    try:
        devices = measured(family)
    except FileNotFoundError as absent:
        pytest.skip(str(absent))
    assert list(devices) == list(MODELS.values())
    shipped = curves_of("gpu")[family]
    free = tuple(f for f in SHAPE if f != "piece_cycles" or family != "product")
    for model, seen in devices.items():
        others = [d for name, d in devices.items() if name != model]
        curve, _ = fit_curve(shipped.corrected({"arithmetic": 0.7, "memory": 0.7}), others, free=free)
        assert _median_error(curve, seen) < unseen, model
        if model != "arc-pro-b60":  # its floor is its own: 26 us against 3
            assert _median_error(shipped, seen) < fitted, model


@pytest.mark.parametrize("family", ["product", "prefill", "decode"])
def test_what_is_shipped_is_what_the_published_kernels_say(family: str) -> None:
    """Fitting again, from elsewhere, comes back to the shipped numbers within 2 %."""
    try:
        devices = measured(family)
    except FileNotFoundError as absent:
        pytest.skip(str(absent))
    shipped = curves_of("gpu")[family]
    free = tuple(f for f in SHAPE if getattr(shipped, f))
    start = Curve(0.7, 0.8, 2.0, 6000.0, 500.0, 2000.0 if shipped.piece_cycles else 0.0, 1.0, 0.15)
    found, _ = fit_curve(start, list(devices.values()), free=free)
    for name in (*free, "floor_cycles"):
        assert getattr(found, name) == pytest.approx(getattr(shipped, name), rel=0.02), name


def _median_error(curve: Curve, seen: Measured) -> float:
    return float(np.median(np.abs(curve.seconds(seen.work, seen.figures, warm=True) / seen.seconds - 1)))

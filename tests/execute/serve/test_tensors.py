"""Tensors of requests and responses: what is written is read, and nothing else is."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from placewright.errors import InvalidInput
from placewright.execute.serve.messages import TensorSpec, array_of, tensor_of
from placewright.execute.serve.tensors import from_json, from_npz, largest_body, to_json, to_npz

X = TensorSpec("x", "float32", (2, 3))
IDS = TensorSpec("ids", "int64", (2,))
NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


def as_json(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": NUMBERS.tolist(), **changes}
    return json.dumps({"inputs": [tensor]}).encode()


def as_npz(**given: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **given)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool"])
@given(data=st.data())
def test_both_forms_carry_every_array_to_the_last_bit(dtype: str, data: st.DataObject) -> None:
    """JSON writes numbers so that they read back the same; the text is never above the largest body."""
    elements = {"allow_nan": False, "allow_infinity": False} if dtype.startswith("float") else None
    array = data.draw(arrays(np.dtype(dtype), array_shapes(max_dims=3, max_side=4), elements=elements))
    spec = TensorSpec("x", dtype, array.shape)
    outputs = json.loads(to_json({"x": array}))["outputs"]
    text = json.dumps({"inputs": outputs}).encode()
    assert len(text) <= largest_body([spec])
    for read in (from_json(text, [spec])["x"], from_npz(to_npz({"x": array}), [spec])["x"]):
        assert read.dtype == array.dtype and np.array_equal(read, array)
    assert np.array_equal(array_of(tensor_of("x", array)), array)


def test_nested_and_flat_numbers_are_the_same() -> None:
    """Also whole numbers where fractions may stand, and several inputs at once."""
    for data in (NUMBERS.tolist(), NUMBERS.reshape(-1).tolist(), [0, 1, 2, 3, 4, 5]):
        assert np.array_equal(from_json(as_json(data=data), [X])["x"], NUMBERS)
    both = {
        "inputs": [
            json.loads(as_json())["inputs"][0],
            {"name": "ids", "shape": [2], "datatype": "INT64", "data": [1, 2]},
        ]
    }
    assert from_json(json.dumps(both).encode(), [X, IDS])["ids"].tolist() == [1, 2]
    fortran = from_npz(as_npz(x=np.asfortranarray(NUMBERS)), [X])["x"]
    assert np.array_equal(fortran, NUMBERS) and fortran.flags.c_contiguous


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no JSON object"),
        (b"[" * 100_000, "no JSON object"),
        (b'{"inputs": 3}', "no JSON object"),
        (b'{"inputs": []}', "input 'x' is not given"),
        (as_json(name="y"), "the network has no input 'y'; its inputs: 'x'"),
        (as_json(shape=[3, 2]), r"is FP32 \[3, 2\] but was planned for as FP32 \[2, 3\]"),
        (as_json(datatype="FP64"), "is FP64"),
        (as_json(data=[1.0]), "needs 6 numbers of the type float32"),
        (as_json(data=["a"] * 6), "needs 6 numbers"),
        (as_json(data=[[1, 2], [3]]), "needs 6 numbers"),
        (as_json(data=[{}] * 6), "needs 6 numbers"),
        (as_json(data=[1e39, 2, 3, 4, 5, 6]), "needs 6 numbers of the type float32"),
    ],
)
def test_json_that_is_not_what_was_planned_is_refused(body: bytes, said: str) -> None:
    """Each with what is wrong; nothing is cut to fit."""
    with pytest.raises(InvalidInput, match=said):
        from_json(body, [X])


@pytest.mark.parametrize("data", [[1.5, 2], [2**63, 0], [True, False]])
def test_whole_numbers_are_not_made_of_others(data: list[Any]) -> None:
    """A fraction, a number above 64 bits, and truth values are no tokens."""
    body = json.dumps({"inputs": [{"name": "ids", "shape": [2], "datatype": "INT64", "data": data}]}).encode()
    with pytest.raises(InvalidInput, match="needs 2 numbers of the type int64"):
        from_json(body, [IDS])


def test_a_long_text_among_many_takes_no_more_than_it_has() -> None:
    """An array of texts would have room for the longest of them 1,000 times: 40 MB."""
    spec = TensorSpec("x", "float32", (1000,))
    body = as_json(shape=[1000], data=["a" * 10_000] + ["b"] * 999)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="needs 1000 numbers"):
            from_json(body, [spec])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_input_given_twice_is_refused() -> None:
    """Which one would count?"""
    tensor = json.loads(as_json())["inputs"][0]
    with pytest.raises(InvalidInput, match="'x' is given more than once"):
        from_json(json.dumps({"inputs": [tensor, tensor]}).encode(), [X])


def bomb() -> bytes:
    """100 MB of zeros that take 100 kB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(100_000_000))
    return buffer.getvalue()


def packed(method: int, spoil: bool = False) -> bytes:
    """An honest array, packed by one of zip's methods, or spoilt in its midst."""
    array, buffer = io.BytesIO(), io.BytesIO()
    np.save(array, NUMBERS)
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("x.npy", array.getvalue())
    content = bytearray(buffer.getvalue())
    if spoil:
        content[35] ^= 0xFF  # its name ends at 35: 30 bytes of a header, and "x.npy"
    return bytes(content)


def headed(text: str) -> bytes:
    """An array of 24 bytes under any header."""
    header = text.encode().ljust(118) + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "can't be read as an .npz"),
        (as_npz(x=NUMBERS)[:-30], "can't be read as an .npz"),
        (as_npz(y=NUMBERS), "input 'x' is not given"),
        (as_npz(x=NUMBERS.astype(np.float64)), "is float64"),
        (as_npz(x=NUMBERS[:1]), r"is float32 \[1, 3\]"),
        (as_npz(x=np.array([[1, "a", None]] * 2, dtype=object)), "is object"),
        (packed(zipfile.ZIP_DEFLATED), ""),
        (packed(zipfile.ZIP_DEFLATED, spoil=True), "can't be read as an .npz"),
        (packed(zipfile.ZIP_LZMA), "is packed otherwise than numpy does"),
        (bomb(), "is larger than its 24 B"),
        (headed("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), ""),
        (headed("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 3), }"), "was planned for"),
        (headed("__import__('os').system('true')"), "can't be read as an .npz"),
    ],
)
def test_npz_that_is_not_what_was_planned_is_refused(body: bytes, said: str) -> None:
    """Objects, other sizes, a bomb, and headers that lie, none of which takes memory; honest ones are read."""
    if not said:
        assert from_npz(body, [X])["x"].shape == (2, 3)
        return
    with pytest.raises(InvalidInput, match=said):
        from_npz(body, [X])

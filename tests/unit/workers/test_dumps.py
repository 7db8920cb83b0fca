"""Arrays that a test handed over: files that hold anything, and inputs that no kernel was given."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.errors import FieldError, JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.stored_tensors import given_inputs, shaped
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from gonogo_workers.reports import dumps
from gonogo_workers.reports.dumps import Dump
from gonogo_workers.reports.rows import Judged

FIELDS: dict[str, Any] = {"shape": [4, 32], "numerics": {"statistics": "own"}}
TEST = TestSpec.parse({"kernel": "layernorm_bw", **FIELDS})
MOST = 1 << 20


def tensors() -> dict[str, NDArray[Any]]:
    """Return the inputs of TEST and the dx of a right kernel."""
    given = quantise(TEST, generate(TEST, 0))
    return {**given, "dx": np.asarray(exact_outputs(TEST, given)["dx"], np.float32)}


def store(folder: Path, **changes: Any) -> dict[str, Any]:
    """Store arrays, and return the part of a report that says where they are.

    `changes` are other arrays, or paths.
    """
    named: dict[str, str] = {}
    for name, value in {**tensors(), **changes}.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
            value = folder / f"{name}.npy"
        named[name] = str(value)
    return {"kernel": "layernorm_bw", "fields": FIELDS, "tensors": named, "arithmetic": "fused"}


def judged(data: dict[str, Any], arithmetic: str | None = None) -> Judged:
    """Read the arrays and judge them."""
    return dumps.judged(dumps.read(data, max_elements=MOST), "A.B", arithmetic)


def test_arrays_of_a_right_kernel_are_explained(tmp_path: Path) -> None:
    judged_arrays = judged(store(tmp_path))
    assert judged_arrays.judgement is not None, judged_arrays.problem
    assert judged_arrays.judgement.verdict == "pass"
    assert list(judged_arrays.judgement.outputs) == ["dx"]


def test_the_build_s_arithmetic_comes_before_the_dump_s(tmp_path: Path) -> None:
    arithmetics = []
    for arithmetic in (None, "wormhole"):
        judgement = judged(store(tmp_path), arithmetic).judgement
        assert judgement is not None
        arithmetics.append(judgement.arithmetic)
    assert ["Wormhole" in arithmetic for arithmetic in arithmetics] == [False, True]


def test_shapes_may_have_dimensions_of_one_and_flat_rows(tmp_path: Path) -> None:
    gamma = tensors()["gamma"].reshape(1, 1, 1, 32)
    assert (
        judged(store(tmp_path, gamma=gamma, dy=tensors()["dy"].reshape(4, 1, 32))).judgement
        is not None
    )


def truncated(folder: Path) -> Path:
    path = folder / "cut.npy"
    np.save(path, tensors()["x"])
    os.truncate(path, 200)
    return path


def pickled(folder: Path) -> Path:
    path = folder / "pickled.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return path


def text(folder: Path) -> Path:
    path = folder / "text.npy"
    path.write_text("no array")
    return path


def pipe(folder: Path) -> Path:
    path = folder / "pipe.npy"
    os.mkfifo(path)
    return path


def huge(folder: Path) -> Path:
    """A header that promises more than there is: reading by it would ask for all memory."""
    path = folder / "huge.npy"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 32), }".ljust(117) + b"\n"
    path.write_bytes(
        b"\x93NUMPY\x01\x00"
        + len(header).to_bytes(2, "little")
        + header.replace(b"(4, 32)", b"(1<<40)")
    )
    return path


def missing(folder: Path) -> Path:
    return folder / "nowhere.npy"


@pytest.mark.parametrize("make", [truncated, pickled, text, pipe, huge, missing])
def test_a_file_that_is_no_array_is_told_and_nothing_is_unpickled_or_waited_for(
    tmp_path: Path, make: Any
) -> None:
    judged_arrays = judged(store(tmp_path, x=make(tmp_path)))
    assert judged_arrays.judgement is None
    assert "can't be judged" in judged_arrays.problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"x": np.zeros((5, 32), np.float32)}, "elements"),
        ({"x": np.zeros((2, 32), np.float32)}, "wrong shape"),
        ({"x": np.zeros((4, 32), np.int32)}, "not floats"),
        ({"y": np.zeros((4, 32), np.float32)}, "y"),
    ],
)
def test_an_array_that_is_not_the_test_s_is_told(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    assert problem in judged(store(tmp_path, **change)).problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kernel": "softmx"}, "arrays.kernel"),
        ({"fields": {"shape": [4, 32], "colour": "red"}}, "arrays.colour"),
        ({"fields": {"shape": [1 << 20, 32]}}, "elements"),
        ({"fields": []}, "arrays.shape"),
        ({"fields": "x"}, "fields"),
        ({"arithmetic": "nonesuch"}, "arithmetic"),
        ({"tensors": {}}, "no output"),
        ({"tensors": []}, "no output"),
    ],
)
def test_a_manifest_that_is_no_test_is_told(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    assert problem in judged({**store(tmp_path), **change}).problem


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    data = store(tmp_path)
    del data["tensors"]["dy"]
    assert "dy missing" in judged(data).problem


def test_the_arrays_of_an_iteration_have_a_limit(tmp_path: Path) -> None:
    dump = dumps.read(store(tmp_path), max_elements=MOST, left=100)
    assert "too large" in dump.problem
    assert dump.nbytes == 0


def test_an_input_that_no_kernel_was_given_is_told_with_its_place(tmp_path: Path) -> None:
    x = tensors()["x"].copy()
    x[2, 5] = 0.1
    assert "x[2, 5]" in judged(store(tmp_path, x=x)).problem


def test_a_raw_input_is_rounded_and_tolerances_compare_with_it() -> None:
    x = tensors()["x"] * np.float32(1 + 1e-5)
    exact = {name: array for name, array in tensors().items() if name in ("gamma", "dy")}
    raw, given = given_inputs(TEST, exact, {"x": x})
    assert np.array_equal(given["x"], tensors()["x"])
    assert np.array_equal(raw["x"], x)
    assert np.array_equal(raw["dy"], given["dy"])


def test_a_raw_x_gives_the_raw_statistics() -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": [4, 32]})
    drawn_inputs = generate(test, 0)
    given = quantise(test, drawn_inputs)
    raw, again = given_inputs(
        test,
        {name: array for name, array in given.items() if name != "x"},
        {"x": drawn_inputs["x"]},
    )
    assert np.array_equal(raw["mean"], drawn_inputs["mean"])
    assert np.array_equal(again["mean"], given["mean"])


def test_strangers_and_wrong_types_are_refused() -> None:
    with pytest.raises(FieldError, match="isn't a tensor"):
        given_inputs(TEST, {"z": np.zeros(3, np.float32)}, {})
    with pytest.raises(FieldError, match="float array"):
        shaped(TEST, "x", np.zeros((4, 32), np.int64))
    with pytest.raises(JobError, match="x, gamma, dy missing"):
        given_inputs(TEST, {}, {})


def dump(name: str) -> Dump:
    return Dump(None, {}, {}, None, name)


def test_names_of_arrays_do_not_depend_on_who_came_first() -> None:
    assert dumps.labels("A.B", [dump("")]) == ["A.B"]
    assert dumps.labels("A.B", [dump("dx"), dump("dgamma")]) == ["A.B#dx", "A.B#dgamma"]
    assert dumps.labels("A.B", [dump(""), dump("")]) == ["A.B#1", "A.B#2"]
    assert dumps.labels("A.B", [dump("dx"), dump("dx")]) == ["A.B#dx", "A.B#dx (2)"]


def test_arrays_can_be_judged_in_several_threads(tmp_path: Path) -> None:
    data = store(tmp_path)
    results: list[Judged] = []
    threads = [threading.Thread(target=lambda: results.append(judged(data))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    digests = {
        result.judgement.outputs["dx"].statistics["digest"]
        for result in results
        if result.judgement is not None
    }
    assert (len(results), len(digests)) == (3, 1)

"""Arrays that a test handed over: files that hold anything, and inputs that no kernel was given."""

from __future__ import annotations

import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.errors import JobError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.stored_tensors import given_inputs
from gonogo.reports.texts import labels
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from gonogo_workers.reports import dumps
from gonogo_workers.reports.exchange import read_reports
from gonogo_workers.reports.rows import JudgedDump

FIELDS: dict[str, Any] = {"shape": [4, 32], "numerics": {"statistics": "own"}}
TEST = TestSpec.parse({"kernel": "layernorm_bw", **FIELDS})
GIVEN: dict[str, NDArray[Any]] = dict(quantise(TEST, generate(TEST, 0)))
TENSORS = {**GIVEN, "dx": np.asarray(exact_outputs(TEST, GIVEN)["dx"], np.float32)}
MOST = 1 << 20
HOLLOW = "pass_by_tolerance"  # the arrays are of no Wormhole


def store(folder: Path, **changes: Any) -> dict[str, Any]:
    """Store arrays of a right kernel, or others, or paths; return the part of a report that says
    where they are."""
    named: dict[str, str] = {}
    for name, value in {**TENSORS, **changes}.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
            value = folder / f"{name}.npy"
        named[name] = str(value)
    return {"kernel": "layernorm_bw", "fields": FIELDS, "tensors": named, "arithmetic": "fused"}


def judged(data: dict[str, Any], arithmetic: str | None = None) -> JudgedDump:
    return dumps.judged(dumps.read(data, max_elements=MOST), "A.B", arithmetic)


def test_arrays_of_a_right_kernel_are_explained_also_flat_and_by_the_build_s_arithmetic(
    tmp_path: Path,
) -> None:
    flat = {"gamma": GIVEN["gamma"].reshape(1, 1, 1, 32), "dy": GIVEN["dy"].reshape(4, 1, 32)}
    for arrays, arithmetic in ({}, None), ({}, "wormhole"), (flat, None):
        judged_arrays = judged(store(tmp_path, **arrays), arithmetic)
        assert judged_arrays.judgement is not None, judged_arrays.problem
        assert judged_arrays.judgement.verdict == ("pass" if arithmetic is None else HOLLOW)
        assert list(judged_arrays.judgement.outputs) == ["dx"]
        assert ("Wormhole" in judged_arrays.judgement.arithmetic) is (arithmetic is not None)


def damaged(folder: Path, how: str) -> Path:
    path = folder / "damaged.npy"
    if how == "truncated":
        np.save(path, GIVEN["x"])
        os.truncate(path, 200)
    elif how == "pickled":
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    elif how == "text":
        path.write_text("no array")
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "huge":  # the header promises more than there is, and more than memory holds
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1<<40), }".ljust(117) + b"\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return path


@pytest.mark.parametrize("how", ["truncated", "pickled", "text", "pipe", "huge", "missing"])
def test_a_file_that_is_no_array_is_told_and_nothing_is_unpickled_or_waited_for(
    tmp_path: Path, how: str
) -> None:
    judged_arrays = judged(store(tmp_path, x=damaged(tmp_path, how)))
    assert judged_arrays.judgement is None
    assert "can't be judged" in judged_arrays.problem


def no_kernel_s_x() -> NDArray[Any]:
    x = GIVEN["x"].copy()
    x[2, 5] = 0.1
    return x


@pytest.mark.parametrize(
    ("arrays", "changes", "problem"),
    [
        ({"x": np.zeros((5, 32), np.float32)}, {}, "elements"),
        ({"x": np.zeros((2, 32), np.float32)}, {}, "wrong shape"),
        ({"x": np.zeros((4, 32), np.int32)}, {}, "not floats"),
        ({"y": np.zeros((4, 32), np.float32)}, {}, "y"),
        ({"x": no_kernel_s_x()}, {}, "x[2, 5]"),
        ({}, {"kernel": "softmx"}, "arrays.kernel"),
        ({}, {"fields": {"shape": [4, 32], "colour": "red"}}, "arrays.colour"),
        ({}, {"fields": {"shape": [1 << 20, 32]}}, "elements"),
        ({}, {"fields": []}, "arrays.shape"),
        ({}, {"fields": "x"}, "fields"),
        ({}, {"arithmetic": "nonesuch"}, "arithmetic"),
        ({}, {"tensors": {}}, "no output"),
        ({}, {"tensors": []}, "no output"),
    ],
)
def test_what_is_not_an_array_or_a_manifest_of_the_test_is_told(
    tmp_path: Path, arrays: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    assert problem in judged({**store(tmp_path, **arrays), **changes}).problem


def test_a_missing_input_is_named_and_the_arrays_of_an_iteration_have_a_limit(
    tmp_path: Path,
) -> None:
    dump = dumps.read(store(tmp_path), max_elements=MOST, left=100)
    assert ("too large" in dump.problem, dump.nbytes) == (True, 0)
    data = store(tmp_path)
    del data["tensors"]["dy"]
    assert "dy missing" in judged(data).problem


def test_a_raw_x_gives_the_raw_statistics() -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": [4, 32]})
    drawn = generate(test, 0)
    quantised = quantise(test, drawn)
    others = {name: array for name, array in quantised.items() if name != "x"}
    raw, given = given_inputs(test, others, {"x": drawn["x"]})
    assert np.array_equal(raw["mean"], drawn["mean"])
    assert np.array_equal(given["mean"], quantised["mean"])


def test_a_dump_is_judged_in_several_threads(tmp_path: Path) -> None:
    data = store(tmp_path)
    with ThreadPoolExecutor(3) as threads:
        results = [*threads.map(judged, [data] * 3)]
    judgements = [result.judgement for result in results if result.judgement]
    digests = {one.outputs["dx"].statistics["digest"] for one in judgements}
    assert (len(judgements), len(digests)) == (3, 1)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("",), ["A.B"]),
        (("dx", "dgamma"), ["A.B#dx", "A.B#dgamma"]),
        (("", ""), ["A.B#1", "A.B#2"]),
        (("dx", "dx"), ["A.B#dx", "A.B#dx (2)"]),
    ],
)
def test_names_of_arrays_do_not_depend_on_who_came_first(
    names: tuple[str, ...], expected: list[str]
) -> None:
    assert labels("A.B", names) == expected


def test_what_grows_when_it_is_read_is_refused_unread(tmp_path: Path) -> None:
    header, reports = tmp_path / "x.npy", tmp_path / "reports.json"
    header.write_bytes(b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little"))
    os.truncate(header, 2**31)
    reports.write_bytes(b"[" + b"[]," * 2**20 + b"[]]")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="no header"):
            dumps.load(str(header), most=10)
        with pytest.raises(JobError, match="too many lists"):
            read_reports(reports)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_kernel_s_link_is_not_followed(tmp_path: Path) -> None:
    private = tmp_path / "secret.json"
    private.write_text('[{"name": "secret", "outcome": "passed"}]')
    np.save(tmp_path / "private.npy", np.zeros(3, np.float32))
    link, fifo = tmp_path / "reports.json", tmp_path / "fifo"
    link.symlink_to(private)
    os.mkfifo(fifo)
    for place in (link, fifo, tmp_path):
        with pytest.raises(JobError, match="can't be read"):
            read_reports(place)
    assert private.exists()
    link.unlink()
    link.symlink_to(tmp_path / "private.npy")
    with pytest.raises(OSError, match=r"symbolic links|regular file"):
        dumps.load(str(link), most=10)

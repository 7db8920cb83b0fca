"""--gonogo-capture: the comparisons of suites that don't know GoNoGo, and no outcome changes."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from pytest_plugin import in_a_process, in_this_process

UTILITIES = """
    import numpy as np

    def comp_pcc(golden, calculated, pcc=0.99):
        golden, calculated = np.nan_to_num(golden), np.nan_to_num(calculated)
        with np.errstate(all="ignore"):
            value = np.corrcoef(golden.ravel(), calculated.ravel())[0, 1]
        return bool(np.isnan(value) or value >= pcc), f"PCC: {value}"

    def assert_with_pcc(expected_pytorch_result, actual_pytorch_result, pcc=0.9999):
        passed, message = comp_pcc(expected_pytorch_result, actual_pytorch_result, pcc)
        assert passed, message
    """
SUITE = """
    import threading

    import numpy as np
    import pytest
    from numpy.testing import assert_allclose as same

    from utilities import assert_with_pcc, comp_pcc

    x = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")

    class Raises:
        def __array__(self, *args, **kwargs): raise OSError("no device")

    @pytest.mark.parametrize("k", [1, 2])
    def test_right(k): same(x * np.float32(k + 1e-6), x * k, rtol=1e-5)
    def test_red(): same(x, x + 1)
    def test_red_as_wished():
        with pytest.raises(AssertionError): same(x, x + 1)
    def test_array_raises():
        with pytest.raises(OSError): same(Raises(), x)
    def test_own_patch(monkeypatch):
        monkeypatch.setattr(np.testing, "assert_allclose", lambda *given: None)
        np.testing.assert_allclose(1, 2)
    def test_threads():
        threads = [threading.Thread(target=same, args=(x, x.copy())) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    def test_text(): same(np.array([1j]), np.array([1j]))
    def test_false(): assert not comp_pcc(x, -x)[0]

    def test_nonfinite():
        y = x.copy(); y[3] = np.nan
        assert_with_pcc(x, y, 0.9)
    def test_power_of_two():
        y = x * np.float32(1 + 1e-6); y.flat[np.abs(x).argmax()] *= 2
        assert comp_pcc(x, y)[0]
    def test_blind_pcc(): assert_with_pcc(x, x * 2 + 1)
    def test_same_memory():
        for scale in (1, 2):
            y = x * scale
            same(y, y)
    def test_empty(): np.testing.assert_allclose([], [])
    def test_nothing_finite(): same(x * np.nan, x * np.nan)
    def test_constant(): assert_with_pcc(np.ones(9), np.arange(9.0))
    def test_zero_passes(): same(x * 1.1e-9, x * 1e-9, atol=1e-6)
    """
HOLLOW = (
    *("nonfinite", "power_of_two", "blind_pcc", "same_memory", "empty"),
    *("nothing_finite", "constant", "zero_passes"),
)
NORM = """
    import numpy as np
    import pytest

    @pytest.mark.parametrize("ddof", [0, 1])
    def test_layer_norm(ddof):
        torch_input = np.random.default_rng(0).normal(size=(32, 64)).astype("float32")
        weight, bias = np.ones(64, "float32"), np.zeros(64, "float32")
        centered = torch_input - torch_input.mean(1, keepdims=True)
        deviation = np.sqrt(torch_input.var(1, keepdims=True, ddof=ddof) + np.float32(1e-6))
        golden = centered.astype("float64") / np.sqrt(torch_input.var(1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(centered / deviation, golden, rtol=.1)

    def comp_pcc(golden, calculated, pcc=.99):
        return True, "leaves NaN out"

    def test_hidden_nan():
        x = np.random.default_rng(0).normal(size=(32, 64)).astype("float32")
        gamma = np.ones(64, "float32")
        golden = x.astype("float64") / np.sqrt(np.mean(np.square(x, dtype="float64"), 1)[:, None])
        y = golden.astype("float32")
        y[3, 4] = np.nan
        assert comp_pcc(golden, y)[0]
    """
TABLE = """
    [tool.gonogo.capture."test_norm.py::test_layer_norm"]
    kernel = "layernorm_fw"
    inputs = { x = "torch_input", gamma = "weight", beta = "bias" }
    [tool.gonogo.capture."*hidden*"]
    kernel = "rmsnorm_fw"
    inputs = { x = "x", gamma = "gamma" }
    """


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with its own comparison functions."""
    (tmp_path / "utilities.py").write_text(dedent(UTILITIES))
    (tmp_path / "conftest.py").write_text("import sys; sys.path.insert(0, '.')")
    (tmp_path / "test_suite.py").write_text(dedent(SUITE))
    return tmp_path


def test_no_outcome_changes_and_what_is_hollow_is_listed_worst_first(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, original = in_this_process(monkeypatch), np.testing.assert_allclose
    run(suite, "--gonogo=off", "--junitxml=off.xml")
    lines = run(suite, "--gonogo-capture", "--gonogo=numbers", "--junitxml=on.xml")
    assert _outcomes(suite / "on.xml") == _outcomes(suite / "off.xml")
    assert np.testing.assert_allclose is original
    listed = [line.split()[2] for line in lines if line.startswith("HOLLOW GATE")]
    assert listed == [f"test_suite.py::test_{name}" for name in HOLLOW]
    memory = lines[lines.index(next(line for line in lines if "test_same_memory" in line)) + 1]
    assert memory == (
        "  assert_allclose (rtol 1e-07, atol 0; largest error 0) holds, but both sides are the same"
        " memory: a tensor is compared with itself (the worst of 2 calls)"
    )
    assert (
        "captured 18 comparisons; 1 more could not be read: 1 TypeError: actual must be an array of"
        " real numbers; got ndarray of complex128" in lines
    )
    (path,) = suite.glob("numbers/*.jsonl")
    _, *records = map(json.loads, path.read_text().splitlines())
    stored = {
        record["name"].partition("::test_")[2]: comparison["outputs"]["actual"].get("weakness")
        for record in records
        for comparison in record["comparisons"]
    }
    assert {name for name, weakness in stored.items() if name == weakness} == set(HOLLOW)
    assert all(weakness in (None, name) for name, weakness in stored.items())


def test_a_table_of_kernels_has_comparisons_judged_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_norm.py").write_text(dedent(NORM))
    (tmp_path / "pyproject.toml").write_text(dedent(TABLE))
    run = in_this_process(monkeypatch)
    lines = run(tmp_path, "--gonogo-capture", "--gonogo=off", status=0)
    at = next(place for place, line in enumerate(lines) if line.startswith("HOLLOW PASS"))
    assert lines[at] == "HOLLOW PASS test_norm.py::test_layer_norm[1] (assert_allclose, line 12)"
    assert "variance divides by N - 1" in lines[at + 3]
    assert lines[-1].startswith("1 passed, 2 hollow")
    for wrong in ("capture.test_norm]\nkernel = 'x'", "capture]\ntest_norm = true"):
        (tmp_path / "pyproject.toml").write_text(f"[tool.gonogo.{wrong}")
        run(tmp_path, "--gonogo-capture", "--gonogo=off", status=4)


def test_processes_of_xdist_send_what_they_captured(suite: Path) -> None:
    lines = in_a_process(suite, "-p", "xdist", "-n2", "--gonogo-capture", "--gonogo=off")
    assert sum(line.startswith("HOLLOW GATE") for line in lines) == len(HOLLOW)
    assert any(line.startswith("captured 18 comparisons; 1 more") for line in lines)


def _outcomes(path: Path) -> list[tuple[str | None, list[str]]]:
    cases = xml.etree.ElementTree.parse(path).iter("testcase")
    return [(case.get("name"), [child.tag for child in case]) for case in cases]

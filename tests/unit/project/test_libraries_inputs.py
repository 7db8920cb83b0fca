"""Inputs and mutants of `benchmarks.libraries`, with NumPy alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.libraries import cases, exact, failures, mutants
from benchmarks.libraries.cases import FORMATS, KINDS, Case
from benchmarks.libraries.environments import ENVIRONMENTS
from benchmarks.libraries.sources import SUMS
from gonogo.arithmetic.formats import round_to

ROOT = Path(__file__).resolve().parents[3]
SMALL = {
    "layernorm_fw": (4, 64),
    "layernorm_bw": (4, 64),
    "rmsnorm_fw": (4, 64),
    "rmsnorm_bw": (4, 64),
    "groupnorm_fw": (2, 64, 8, 8),
}
UNIT = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}


def small(kind: str, number_format: str = "fp32", regime: str = "random-gamma") -> Case:
    return Case(kind, SMALL[kind], regime, number_format)


def test_a_seed_draws_the_same_values_in_every_format_up_to_one_rounding() -> None:
    exact_x = cases.inputs(small("layernorm_fw"), 3)["x"]
    for number_format in ("bf16", "fp16"):
        x = cases.inputs(small("layernorm_fw", number_format), 3)["x"]
        np.testing.assert_array_equal(x, round_to(exact_x, number_format))


def test_seeds_and_tensors_differ() -> None:
    tensors = cases.inputs(small("layernorm_bw"), 0)
    assert not np.array_equal(tensors["x"], tensors["dy"])
    assert not np.array_equal(tensors["x"], cases.inputs(small("layernorm_bw"), 1)["x"])
    case = small("layernorm_bw")
    assert cases.inputs_digest(case, 0) != cases.inputs_digest(case, 1)


def test_inputs_are_values_of_the_format_in_the_shapes_of_the_case() -> None:
    for case in cases.cases():
        if np.prod(case.shape) > 2**16:
            continue
        for name, values in cases.inputs(case, 0).items():
            expected = case.shape if name in ("x", "dy") else (case.channels,)
            assert values.shape == expected, (case.name, name)
            assert np.isfinite(values).all(), (case.name, name)
            np.testing.assert_array_equal(round_to(values, case.format), values)


def test_every_case_is_found_by_its_name() -> None:
    rows = list(cases.cases())
    assert len({case.name for case in rows}) == len(rows)
    for case in rows:
        assert cases.case_named(case.name) == case
    with pytest.raises(ValueError, match="no case"):
        cases.case_named("layernorm_fw-4x64-unknown-fp32")


def test_regimes_have_their_properties() -> None:
    offset = cases.inputs(Case("layernorm_fw", (16, 1000), "offset-100", "fp32"), 0)["x"]
    assert abs(float(offset.mean()) - 100) < 0.1
    small_x = cases.inputs(Case("layernorm_fw", (16, 1000), "small", "fp32"), 0)["x"]
    assert 0.9e-3 < float(small_x.std()) < 1.1e-3
    dy = cases.inputs(Case("layernorm_bw", (4, 64), "one-sign-dy", "fp32"), 0)["dy"]
    assert (dy >= 0).all()
    hot = cases.inputs(Case("layernorm_fw", (64, 300), "hot-tile", "fp32"), 0)["x"]
    assert (hot[:, 64:96] == 20).all()
    assert (hot[:, :64] < 20).all()
    ramp = cases.inputs(Case("layernorm_fw", (33, 33), "ramp", "fp32"), 0)["x"]
    assert (np.diff(ramp) > 0).all()


@pytest.mark.parametrize("kind", cases.EXACT_KINDS)
@pytest.mark.parametrize("shape", cases.EXACT_SHAPES)
@pytest.mark.parametrize("number_format", FORMATS)
def test_right_sources_agree_to_the_bit_on_exact_inputs(
    kind: str, shape: tuple[int, int], number_format: str
) -> None:
    case = Case(kind, shape, "exact", number_format)
    absorbed = replace(case, fixed_epsilon=0.0)  # in fp32, rows of this size absorb epsilon
    reference = mutants.reference(absorbed, 0)
    count = 0
    for source in mutants.SOURCES:
        if source.kind == case.kind and source.suits(number_format):
            outputs = mutants.run(source, case, 0)
            for name, values in reference.items():
                np.testing.assert_array_equal(outputs[name], round_to(values, number_format))
            count += 1
    assert count >= 2


def test_exact_codes_have_sum_0_and_mean_square_4() -> None:
    generator = np.random.default_rng(0)
    for features in (16, 64, 1000, 4096):
        codes = exact.codes(features, generator)
        assert codes.shape == (features,)
        assert codes.sum() == 0
        assert (codes**2).sum() == 4 * features
        assert np.abs(codes).max() <= 4
    with pytest.raises(ValueError, match="33 features"):
        exact.codes(33, generator)


@pytest.mark.parametrize("kind", cases.EXACT_KINDS)
def test_a_logic_edit_shows_on_exact_inputs(kind: str) -> None:
    case = Case(kind, (16, 1024), "exact", "bf16")
    source = next(row for row in mutants.SOURCES if row.kind == kind)
    right = mutants.run(source, case, 0)
    for edit in mutants.EDITS[kind]:
        if edit.is_logic:
            wrong = mutants.run(source, case, 0, edit.name)
            assert any((wrong[name] != right[name]).any() for name in edit.outputs), edit.name


@pytest.mark.parametrize("source", mutants.SOURCES, ids=lambda row: f"{row.kind} {row.name}")
def test_unedited_sources_are_right(source: mutants.Source) -> None:
    for number_format in FORMATS:
        case = small(source.kind, number_format)
        outputs = mutants.run(source, case, 0)
        for name, expected in mutants.reference(case, 0).items():
            error = np.abs(outputs[name] - expected).max() / np.abs(expected).max()
            assert error < 12 * UNIT[number_format], (number_format, name)
            np.testing.assert_array_equal(round_to(outputs[name], number_format), outputs[name])


def test_the_reference_of_the_gradients_is_a_derivative() -> None:
    """dx is the derivative of sum(dy y) along a direction, by a difference quotient."""
    for kind in ("layernorm", "rmsnorm"):
        case = small(f"{kind}_bw")
        tensors = {name: a.astype(np.float64) for name, a in cases.inputs(case, 0).items()}
        gradients = mutants.reference(case, 0)
        direction = np.random.default_rng(1).standard_normal(case.shape)

        def total(
            step: float, kind: str = kind, t: dict = tensors, along: np.ndarray = direction
        ) -> float:
            x = t["x"] + step * along
            centered = x - x.mean(1, keepdims=True) if kind == "layernorm" else x
            rstd = 1 / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-30)
            return float((t["dy"] * t["gamma"] * centered * rstd).sum())

        quotient = (total(1e-5) - total(-1e-5)) / 2e-5
        assert abs(quotient - (gradients["dx"] * direction).sum()) < 1e-3 * abs(quotient)


@pytest.mark.parametrize("kind", KINDS)
def test_every_edit_changes_its_outputs_and_no_others(kind: str) -> None:
    """Edits that name a tile of 3 or 32 columns need inputs where that tile counts."""
    source = next(row for row in mutants.SOURCES if row.kind == kind)
    case = small(kind, "fp32", "offset-3")
    right = mutants.exact(source, case, 0)
    for edit in mutants.EDITS[kind]:
        if edit.term == "precision":
            continue
        wrong = mutants.exact(source, case, 0, edit.name)
        changed = {name for name in right if not np.allclose(wrong[name], right[name], rtol=1e-9)}
        assert changed <= set(edit.outputs), edit.name
        assert changed, edit.name


def test_an_edit_of_precision_is_a_no_op_in_exact_arithmetic_and_others_are_not() -> None:
    case = small("layernorm_fw", "fp32", "offset-3")
    for edit in mutants.EDITS["layernorm_fw"]:
        mutant = mutants.Mutant(mutants.SOURCES[0], edit)
        assert mutants.is_no_op(mutant, case, 0) == (edit.term == "precision"), edit.name
    beta = mutants.Mutant(mutants.SOURCES[0], mutants.Edit("mean-not-subtracted", "mean", ("y",)))
    centered = Case("layernorm_fw", (16, 1024), "exact", "fp32")
    assert not mutants.is_no_op(beta, centered, 0)


def test_edit_names_are_unique_and_every_source_has_mutants() -> None:
    for kind, edits in mutants.EDITS.items():
        assert len({edit.name for edit in edits}) == len(edits)
        names = {mutant.source.name for mutant, _ in mutants.mutants(kind, "bf16")}
        assert names == {source.name for source in mutants.SOURCES if source.kind == kind}
        for mutant, case in mutants.mutants(kind, "fp32"):
            assert not mutant.source.stored
            assert case.kind == kind
            assert mutants.mutant_named(mutant.name, kind) == mutant
    with pytest.raises(ValueError, match="no mutant"):
        mutants.mutant_named("fp32: unknown", "layernorm_fw")


def test_only_logic_edits_run_on_exact_inputs() -> None:
    rows = [
        mutant.edit
        for mutant, case in mutants.mutants("layernorm_fw", "bf16")
        if case.regime == "exact"
    ]
    assert {edit.name for edit in rows} == {
        edit.name for edit in mutants.EDITS["layernorm_fw"] if edit.is_logic
    }


@pytest.mark.parametrize("order", SUMS)
def test_every_order_sums_all_terms(order: str) -> None:
    terms = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    total = SUMS[order](terms)
    assert total.shape == (5, 1)
    np.testing.assert_allclose(total[:, 0], terms.astype(np.float64).sum(1), atol=1e-5)


def test_storing_sources_round_more_than_fp32_inside_ones() -> None:
    case = Case("layernorm_fw", (16, 1000), "normal", "bf16")
    expected = mutants.reference(case, 0)["y"]
    errors = {
        source.name: np.abs(mutants.run(source, case, 0)["y"] - expected).mean()
        for source in mutants.SOURCES
        if source.kind == case.kind
    }
    assert errors["composite"] > 1.2 * errors["fp32"]


def test_listed_failures_are_those_that_the_inputs_cause() -> None:
    far = Case("layernorm_fw", (16, 1000), "offset-100", "fp32")
    near = Case("layernorm_fw", (16, 1000), "normal", "fp32")
    fast = "linen.LayerNorm fast variance (jit)"
    assert failures.listed("jax", fast, far, 0)
    assert not failures.listed("jax", fast, near, 0)
    assert not failures.listed("torch", "F.layer_norm", far, 0)
    assert not failures.listed("jax", "linen.LayerNorm two-pass (jit)", far, 0)
    large = Case("layernorm_fw", (32, 1024), "large", "fp16")
    assert failures.listed("torch", "composite", large, 0)
    assert not failures.listed("torch", "composite", large_in("fp32"), 0)
    ramp = Case("layernorm_fw", (8, 8462), "ramp", "fp16")
    assert failures.listed("mlx", "composite", ramp, 0)
    assert not failures.listed("torch", "composite", ramp, 0)
    assert not failures.listed("mlx", "fast.layer_norm", ramp, 0)
    sums = Case("layernorm_bw", (2048, 64), "one-sign-dy", "bf16")
    rows = failures.listed("torch", "F.layer_norm", sums, 0)
    assert [row.outputs for row in rows] == [("dgamma", "dbeta")]


def large_in(number_format: str) -> Case:
    return Case("layernorm_fw", (32, 1024), "large", number_format)


def test_torch_s_environment_is_the_one_of_make_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    variables = dict(re.findall(r"^(TORCH_\w+) := (\S+)$", text, re.MULTILINE))
    torch = next(row for row in ENVIRONMENTS if row.library == "torch")
    assert torch.packages[0] == f"torch=={variables['TORCH_VERSION']}"
    assert torch.folder.name == f"torch-{variables['TORCH_VERSION']}"
    assert torch.stamp.name == variables["TORCH_STAMP"]
    (imports,) = re.findall(r'"\$\(TORCH_VENV\)/bin/python" -c \'import ([\w, ]+)\'', text)
    packages = {package.partition("==")[0] for package in torch.packages}
    assert set(imports.split(", ")) == packages
    assert set(torch.modules) | {"numpy"} == packages
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch.python.parent.mkdir(parents=True)
    torch.python.touch()
    assert not torch.is_installed
    (torch.folder / variables["TORCH_STAMP"]).touch()  # as `make torch` does
    assert torch.is_installed


def test_every_library_has_a_program_and_exact_versions() -> None:
    for environment in ENVIRONMENTS:
        assert environment.program.exists(), environment.library
        for package in environment.packages:
            assert re.fullmatch(r"[\w-]+==[\w.]+", package), package


def test_programs_import_nothing_of_ours() -> None:
    folder = ROOT / "benchmarks" / "libraries" / "programs"
    for path in folder.glob("*.py"):
        imports = re.findall(r"^(?:from|import) ([\w.]+)", path.read_text("utf-8"), re.MULTILINE)
        assert not [name for name in imports if name.split(".")[0] in ("gonogo", "benchmarks")]

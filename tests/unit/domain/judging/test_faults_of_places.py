"""The diagnosis names faults of a place: a tail, a wrong index, one row's part of a sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gonogo.judging.term_shares import TermShare, diagnose
from gonogo.kernels.layernorm.replay import BackwardRows, ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.graph import Graph
from normalized_draws import COUNT, EPSILON, WIDTH, Doubles, draws

X, DY, GAMMA, BETA = draws(12)
RSTD = 1.0 / np.sqrt(X.var(axis=1, keepdims=True) + EPSILON)
NORMALIZED = (X - X.mean(axis=1, keepdims=True)) * RSTD
OF_ROW = np.arange(COUNT)
FORWARD = NormalizedRows(Rows(X, GAMMA, BETA, EPSILON))
RMS = NormalizedRows(Rows(X, GAMMA, None, EPSILON, centered=False))
BACKWARD = BackwardRows(X, DY, GAMMA, None, None, EPSILON)


def y(gamma: Doubles = GAMMA, beta: Doubles = BETA) -> Doubles:
    return NORMALIZED * gamma + beta


def tail(width: int, content: Doubles, first: int = 0) -> Doubles:
    """Return y whose last columns have another content, from a row on."""
    changed = y()
    changed[first:, -width:] = content[first:, -width:]
    return changed


def dx(gamma: Doubles = GAMMA) -> Doubles:
    product = DY * gamma
    s1, s2 = (a.mean(axis=1, keepdims=True) for a in (product, product * NORMALIZED))
    return RSTD * (product - s1 - NORMALIZED * s2)


def without_warp(row: int, columns: slice) -> Doubles:
    """Return dgamma to which some columns of a row are not added."""
    terms = DY * NORMALIZED
    terms[row, columns] = 0.0
    return terms.sum(axis=0, keepdims=True)


def fault(graph: Graph, output: Doubles, form: str) -> TermShare:
    named = diagnose(graph, round_to(output, form), form, graph.forms[0])
    assert named is not None
    return named


FAULTS: dict[str, Callable[[], Doubles]] = {
    "the values of the last 4 columns are those of the row before": lambda: tail(
        4, np.roll(y(), 1, axis=0), 1
    ),
    "the values of the last 8 columns are those of the row after": lambda: tail(
        8, np.roll(y(), -1, axis=0)
    ),
    "the values of the last 5 columns are those of row 0": lambda: tail(
        5, np.broadcast_to(y()[:1], X.shape)
    ),
    "the values of the last 3 columns are 0": lambda: tail(3, np.zeros_like(X)),
    "the values of the last column are 0": lambda: tail(1, np.zeros_like(X)),
    "gamma has the index of the row": lambda: y(GAMMA[0, OF_ROW][:, None]),
    "beta has the index of the row": lambda: y(beta=BETA[0, OF_ROW][:, None]),
    "gamma - 1 is in the place of gamma": lambda: y(GAMMA - 1.0),
    "1 + gamma is in the place of gamma": lambda: y(GAMMA + 1.0),
}


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("words", FAULTS)
def test_a_fault_of_y_is_named_with_its_place(words: str, form: str) -> None:
    assert fault(FORWARD, FAULTS[words](), form).words == words


@pytest.mark.parametrize("shift", [1, -1])
def test_a_gamma_that_is_shifted_is_named_in_few_columns(shift: int) -> None:
    rows = Rows(X[:, :24], GAMMA[:, :24], BETA[:, :24], EPSILON)
    of_mean, rstd = X[:, :24].mean(axis=1), 1 / np.sqrt(X[:, :24].var(axis=1) + EPSILON)
    normalized = (X[:, :24] - of_mean[:, None]) * rstd[:, None]
    output = normalized * np.roll(GAMMA[:, :24], shift, axis=1) + BETA[:, :24]
    named = fault(NormalizedRows(rows), output, "fp32")
    assert named.words == f"gamma is shifted by {shift} column"


def test_gamma_by_row_is_named_in_a_kernel_without_beta() -> None:
    normalized = X / np.sqrt(np.square(X).mean(axis=1, keepdims=True) + EPSILON)
    output = normalized * GAMMA[0, OF_ROW][:, None]
    assert fault(RMS, output, "fp32").words == "gamma has the index of the row"


def test_a_kernel_without_beta_has_none_that_is_off() -> None:
    output = RMS.replay(RMS.forms[0]).values + np.where(np.arange(WIDTH) == 5, 0.3, 0.0)
    assert fault(RMS, output, "fp32").words == "an offset is added in column 5"


@pytest.mark.parametrize("graph", [FORWARD, InputGradient(BACKWARD)], ids=["y", "dx"])
def test_gamma_less_1_is_no_variance_about_0_beside_an_offset(graph: Graph) -> None:
    # such a variance, too, makes nearly nothing of what gamma multiplies
    x, ones = 100.0 + X, np.ones_like(GAMMA)
    if graph is FORWARD:
        named = fault(NormalizedRows(Rows(x, ones, BETA, EPSILON)), y(0.0 * ones), "fp32")
    else:
        rows = BackwardRows(x, DY, ones, None, None, EPSILON)
        named = fault(InputGradient(rows), 0.0 * X, "fp32")
    assert named.words == "gamma - 1 is in the place of gamma"


@pytest.mark.parametrize("words", ["gamma - 1", "1 + gamma"])
def test_a_gamma_of_another_convention_is_named_in_dx(words: str) -> None:
    more = -1.0 if words == "gamma - 1" else 1.0
    named = fault(InputGradient(BACKWARD), dx(GAMMA + more), "fp32")
    assert named.words == f"{words} is in the place of gamma"


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_the_mean_of_layernorm_s_gradient_is_named_in_that_of_rmsnorm(
    form: str, offset: float
) -> None:
    # beside an offset x^ is nearly 1 in all columns, and s1 nearly s2 x^
    x = offset + X
    rstd = 1.0 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + EPSILON)
    normalized, product = x * rstd, DY * GAMMA
    s1, s2 = (a.mean(axis=1, keepdims=True) for a in (product, product * normalized))
    rows = BackwardRows(x, DY, GAMMA, None, None, EPSILON, centered=False)
    output = rstd * (product - s1 - normalized * s2)
    assert fault(InputGradient(rows), output, form).words == "s1 is subtracted, as in LayerNorm"


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("row", [0, 7])
def test_a_warp_that_one_row_lacks_is_named_in_a_column_sum(row: int, form: str) -> None:
    graph = ColumnGradient(BACKWARD, weighted=True)
    words = f"row {row} is missing from the sums of 32 columns from 64 to 95"
    assert fault(graph, without_warp(row, slice(64, 96)), form).words == words


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_x_in_the_place_of_what_is_normalized_is_named_in_a_column_sum(form: str) -> None:
    output = (DY * X).sum(axis=0, keepdims=True)
    graph = ColumnGradient(BACKWARD, weighted=True)
    assert fault(graph, output, form).words == "x is in the place of x^"


def test_a_factor_of_next_to_nothing_is_0() -> None:
    output = -4e-10 * without_warp(0, slice(0, 0))
    graph = ColumnGradient(BACKWARD, weighted=True)
    assert fault(graph, output, "fp32").words == "a common factor of 0"


def test_a_fault_below_the_rounding_is_named_by_the_elements_that_it_moves() -> None:
    # rstd is off by 3e-5, a hundredth of a step: .8 % of the elements have another value
    x = round_to(3.0 + np.random.default_rng(2).standard_normal((64, 160)), "bf16")
    x = np.exp2(np.arange(64) % 4)[:, None] * x.astype(np.float64)
    graph = NormalizedRows(Rows(x, GAMMA, None, 6e-4, centered=False))
    output = NormalizedRows(Rows(x, GAMMA, None, 0.0, centered=False))
    replayed = output.replay(output.forms[0]).values
    named = fault(graph, replayed, "bf16")
    assert named.words == "the mean square leaves epsilon out"
    assert named.share > 0.9


SCALES = np.exp2(np.random.default_rng(4).integers(-7, 8, (COUNT, 1)))


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["rstd", "mean"])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_row_with_a_statistic_of_the_row_before_is_named_in_dx(
    name: str, form: str, is_given: bool
) -> None:
    # rows differ in size, so that a stale rstd makes nearly nothing of a row, or far too much
    x = SCALES * X
    mean = x.mean(axis=1, keepdims=True)
    rstd = 1.0 / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    given = (mean, rstd) if is_given else (None, None)
    graph = InputGradient(BackwardRows(x, DY, GAMMA, *given, EPSILON))
    wrong = {"mean": mean.copy(), "rstd": rstd.copy()}
    wrong[name][12] = wrong[name][11]
    rows = BackwardRows(x, DY, GAMMA, wrong["mean"], wrong["rstd"], EPSILON)
    output = InputGradient(rows)
    words = fault(graph, output.replay(output.forms[0]).values, form).words
    assert words == f"row 12 has the {name} of row 11"


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["rstd", "mean"])
def test_a_row_with_a_statistic_of_another_row_is_named_in_y(name: str, sign: float) -> None:
    x = SCALES * X
    rstd = 1.0 / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    wrong = {"mean": x.mean(axis=1, keepdims=True), "rstd": rstd}
    wrong[name][12] = wrong[name][3]
    output = (x - wrong["mean"]) * wrong["rstd"] * sign * GAMMA + BETA
    graph = NormalizedRows(Rows(x, sign * GAMMA, BETA, EPSILON))
    assert fault(graph, output, "fp32").words == f"row 12 has the {name} of row 3"


def statistics_of(count: float, *, of_mean: bool, zeros: int = 0) -> tuple[Doubles, Doubles]:
    """Return the mean and rstd of X whose variance, and maybe mean, divides by a count."""
    mean = X.sum(axis=1, keepdims=True) / (count if of_mean else WIDTH)
    squares = np.square(X - mean).sum(axis=1, keepdims=True) + zeros * np.square(mean)
    return mean, 1.0 / np.sqrt(squares / count + EPSILON)


PADDED = {
    "the variance divides by 192, not by 160": statistics_of(192, of_mean=False),
    "the mean and the variance divide by 256, not by 160": statistics_of(256, of_mean=True),
    "the variance counts 32 zeros after the row": statistics_of(160, of_mean=False, zeros=32),
}


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("words", PADDED)
def test_padding_that_sums_count_is_named_in_y(words: str, form: str) -> None:
    mean, rstd = PADDED[words]
    output = (X - mean) * rstd * GAMMA + BETA
    assert fault(FORWARD, output, form).words == words


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["s1", "s2", "s1 and s2"])
def test_padding_that_sums_count_is_named_in_dx(name: str, form: str) -> None:
    product = DY * GAMMA
    s1, s2 = (a.mean(axis=1, keepdims=True) for a in (product, product * NORMALIZED))
    of_s1, of_s2 = (160 / 192 if part in name else 1.0 for part in ("s1", "s2"))
    output = RSTD * (product - of_s1 * s1 - of_s2 * s2 * NORMALIZED)
    verb = "divide" if "and" in name else "divides"
    words = fault(InputGradient(BACKWARD), output, form).words
    assert words == f"{name} {verb} by 192, not by 160"


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (slice(3, None, 8), "the rows 3, 11, ... are missing from the sum"),
        (slice(12, 15), "rows 12 to 14 are missing from the sum"),
    ],
)
def test_rows_that_one_partial_sum_has_are_named(lost: slice, words: str, form: str) -> None:
    terms = DY * NORMALIZED
    terms[lost] = 0.0
    graph = ColumnGradient(BACKWARD, weighted=True)
    assert fault(graph, terms.sum(axis=0, keepdims=True), form).words == words


def column_sums(count: int, *, weighted: bool) -> tuple[ColumnGradient, Doubles]:
    """Return the graph of dgamma or dbeta of some rows, and the terms of its sums."""
    draw = np.random.default_rng(3).standard_normal
    x, dy = 0.5 + draw((count, 48)), draw((count, 48))
    centered = x - x.mean(axis=1, keepdims=True)
    normalized = centered / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    rows = BackwardRows(x, dy, 1.0 + 0.3 * draw((1, 48)), None, None, EPSILON)
    return ColumnGradient(rows, weighted=weighted), dy * normalized if weighted else dy


@pytest.mark.parametrize("weighted", [True, False], ids=["dgamma", "dbeta"])
@pytest.mark.parametrize(
    ("count", "rows", "times", "words"),
    [
        (24, slice(5, 6), 0, "row 5 is missing from the sum"),
        (24, slice(5, 6), 2, "row 5 is added twice"),
        (24, slice(0, 2), 0, "rows 0 to 1 are missing from the sum"),
        (24, slice(22, 24), 0, "rows 22 to 23 are missing from the sum"),
        (24, slice(1, 24), 0, "rows 1 to 23 are missing from the sum"),
        (24, slice(0, 24), 0, "a common factor of 0"),
        (24, slice(0, None, 12), 0, "the rows 0, 12, ... are missing from the sum"),
        (25, slice(0, None, 13), 0, "the rows 0, 13, ... are missing from the sum"),
        (1, slice(0, 1), 0, "row 0 is missing from the sum"),
        (2, slice(1, 2), 0, "row 1 is missing from the sum"),
        (3, slice(0, 2), 0, "rows 0 to 1 are missing from the sum"),
        (32, slice(0, 32), 0, "a common factor of 0"),
        (33, slice(32, 33), 0, "row 32 is missing from the sum"),
        (70, slice(32, 64), 0, "row tile 1 is missing from the sum"),
        (70, slice(32, 64), 2, "row tile 1 is added twice"),
        (70, slice(64, 70), 0, "row tile 2 is missing from the sum"),
        (128, slice(11, 16), 2, "rows 11 to 15 are added twice"),
        (128, slice(1, None, 64), 0, "the rows 1, 65, ... are missing from the sum"),
        (64, slice(0, 64), 2, "a common factor of 2"),
        (100, slice(0, 100), 2, "a common factor of 2"),
        (100, slice(1, 100), 2, "rows 1 to 99 are added twice"),
        (200, slice(193, 200), 0, "rows 193 to 199 are missing from the sum"),
        (200, slice(0, 9), 2, "rows 0 to 8 are added twice"),
        (200, slice(64, 128), 0, "rows 64 to 127 are missing from the sum"),
        (200, slice(16, 32), 0, "rows 16 to 31 are missing from the sum"),
    ],
)
def test_rows_that_a_column_sum_leaves_out_or_adds_twice_are_named(
    count: int, rows: slice, times: int, words: str, *, weighted: bool
) -> None:
    graph, terms = column_sums(count, weighted=weighted)
    terms = terms.copy()
    terms[rows] *= times
    assert fault(graph, terms.sum(axis=0, keepdims=True), "fp32").words == words


@pytest.mark.parametrize(
    ("row", "columns", "words"),
    [
        (3, slice(0, 20), "row 3 is missing from the sums of 20 columns from 0 to 19"),
        (3, slice(40, 48), "row 3 is missing from the sums of 8 columns from 40 to 47"),
        (199, slice(47, 48), "row 199 is missing from the sums of column 47"),
    ],
)
def test_columns_at_either_end_that_lack_a_row_are_named(
    row: int, columns: slice, words: str
) -> None:
    graph, terms = column_sums(200, weighted=True)
    terms[row, columns] = 0.0
    assert fault(graph, terms.sum(axis=0, keepdims=True), "fp32").words == words


def statistics_off(rows: dict[int, float]) -> Doubles:
    """Return the rstd of RMSNorm of X, which has a factor in some rows."""
    rstd = 1.0 / np.sqrt(np.square(X).mean(axis=1, keepdims=True) + EPSILON)
    for row, factor in rows.items():
        rstd[row] *= factor
    return np.asarray(rstd)


@pytest.mark.parametrize("is_given", [True, False])
def test_an_rstd_that_is_off_is_named_in_the_column_sum_of_rmsnorm(*, is_given: bool) -> None:
    given = statistics_off({}) if is_given else None
    rows = BackwardRows(X, DY, GAMMA, None, given, EPSILON, centered=False)
    graph = ColumnGradient(rows, weighted=True)
    wrong = {
        "the rstd is off in row 3": statistics_off({3: 1.05}),
        "the rstd is off in rows 3, 9, 20": statistics_off({3: 1.05, 9: 0.95, 20: 0.96}),
        "each row has the rstd of the row before it": np.roll(statistics_off({}), 1, axis=0),
    }
    for words, rstd in wrong.items():
        output = (DY * X * rstd).sum(axis=0, keepdims=True)
        assert fault(graph, output, "fp32").words == words


def test_a_column_sum_without_x_has_no_rstd_that_is_off() -> None:
    graph, terms = column_sums(24, weighted=False)
    terms = terms.copy()
    terms[3] *= 1.3
    named = diagnose(graph, terms.sum(axis=0, keepdims=True), "fp32", graph.forms[0])
    assert named is None or "rstd" not in named.words


def test_a_gamma_that_is_the_same_in_all_columns_is_a_factor_of_a_column_sum() -> None:
    rows = BackwardRows(X, DY, np.full_like(GAMMA, 1.5), None, None, EPSILON)
    output = 1.5 * DY.sum(axis=0, keepdims=True)
    assert fault(ColumnGradient(rows, weighted=False), output, "fp32").words == (
        "a common factor of 1.5"
    )


def test_a_term_that_a_column_sum_lacks_is_named() -> None:
    graph = ColumnGradient(BACKWARD, weighted=True)
    centered = X - X.mean(axis=1, keepdims=True)
    for words, normalized in (("mean is missing", X * RSTD), ("rstd is missing", centered)):
        output = (DY * normalized).sum(axis=0, keepdims=True)
        assert fault(graph, output, "fp32").words == words


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        (slice(3, 4), slice(10, 30), "row 3 is missing from the sums of"),
        (slice(11, 16), slice(0, 48), "rows 11 to 15 are missing from the sum"),
        (slice(2, None, 5), slice(0, 48), "the rows 2, 7, ... are missing from the sum"),
    ],
)
def test_rows_must_explain_nearly_all_of_the_error(rows: slice, columns: slice, words: str) -> None:
    graph, terms = column_sums(24, weighted=True)
    noise = np.random.default_rng(1).standard_normal((1, 48))
    effect = np.zeros((1, 48))
    effect[:, columns] = -terms[rows, columns].sum(axis=0)
    right = terms.sum(axis=0, keepdims=True)
    for left, is_named in ((0.03, True), (0.2, False)):
        rest = noise * np.sqrt(left * np.square(effect).sum() / np.square(noise).sum())
        output = round_to(right + effect + rest, "fp32")
        named = diagnose(graph, output, "fp32", graph.forms[0])
        assert (named is not None and named.words.startswith(words)) is is_named

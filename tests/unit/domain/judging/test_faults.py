"""The diagnosis by replay names the fault that was put into a kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gonogo.judging.term_shares import diagnose
from gonogo.kernels.layernorm.replay import BackwardRows, ColumnGradient, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program
from normalized_draws import COUNT, EPSILON, WIDTH, Doubles, draws

X, DY, GAMMA, BETA = draws(5)
MEAN = X.mean(axis=1, keepdims=True)
VARIANCE = X.var(axis=1, keepdims=True)
RSTD = 1.0 / np.sqrt(VARIANCE + EPSILON)


def y(
    mean: Doubles = MEAN, rstd: Doubles = RSTD, gamma: Doubles = GAMMA, beta: Doubles = BETA
) -> Doubles:
    return (X - mean) * rstd * gamma + beta


def dx(
    mean: Doubles = MEAN, rstd: Doubles = RSTD, gamma: Doubles = GAMMA, s1: float = 1.0
) -> Doubles:
    product, normalized = DY * gamma, (X - mean) * rstd
    s2 = (product * normalized).mean(axis=1, keepdims=True)
    return rstd * (product - s1 * product.mean(axis=1, keepdims=True) - normalized * s2)


def dgamma(mean: Doubles = MEAN, rstd: Doubles = RSTD, rows: slice = slice(None)) -> Doubles:
    return (DY * (X - mean) * rstd)[rows].sum(axis=0, keepdims=True)


def some_columns(vector: Doubles, factor: float) -> Doubles:
    """Return a vector whose columns 32 to 63 are off."""
    changed = vector.copy()
    changed[:, 32:64] *= factor
    return changed


def stale(output: Doubles) -> Doubles:
    changed = output.copy()
    changed[11] = output[3]
    return changed


def rounded_mean() -> Doubles:
    return round_to(MEAN, "bf16").astype(np.float64)


def short_mean() -> Doubles:
    return X[:, :-3].sum(axis=1, keepdims=True) / WIDTH


def in_some_rows(wrong: Doubles, right: Doubles) -> Doubles:
    """Return an output whose last 5 rows are wrong."""
    return np.concatenate([right[:-5], wrong[-5:]])


FORWARD: dict[str, Callable[[], Doubles]] = {
    "the variance divides by N - 1": lambda: y(
        rstd=1 / np.sqrt(VARIANCE * WIDTH / (WIDTH - 1) + EPSILON)
    ),
    "the mean leaves out the last 3 columns": lambda: y(
        short_mean(), 1 / np.sqrt(((X - short_mean()) ** 2).mean(1, keepdims=True) + EPSILON)
    ),
    "the mean is subtracted twice": lambda: y(2 * MEAN),
    "mean is missing": lambda: y(0 * MEAN),
    "each row has the rstd of the row before it": lambda: y(rstd=np.roll(RSTD, 1, axis=0)),
    "gamma is off in 32 columns from 32 to 63": lambda: y(gamma=some_columns(GAMMA, 1.25)),
    "beta is off in 32 columns from 32 to 63, by a factor of -1": lambda: y(
        beta=some_columns(BETA, -1.0)
    ),
    "gamma is shifted by 1 column": lambda: y(gamma=np.roll(GAMMA, 1, axis=1)),
    "row 11 holds the values of row 3": lambda: stale(y()),
    "a common factor of 1.001": lambda: 1.001 * y(),
    "the rstd has a common factor of 1.001": lambda: y(rstd=1.001 * RSTD),
    "the mean is off in": lambda: y(rounded_mean()),
    "the variance leaves out the last 12 columns": lambda: y(
        rstd=1 / np.sqrt((np.square(X - MEAN) / WIDTH)[:, :-12].sum(1, keepdims=True) + EPSILON)
    ),
    "epsilon is about 0.004": lambda: y(rstd=1 / np.sqrt(VARIANCE + 0.004)),
    "epsilon is added outside the root": lambda: y(rstd=1 / (np.sqrt(VARIANCE) + EPSILON)),
    "beta is missing in 5 rows from 19 to 23": lambda: in_some_rows(y(beta=0 * BETA), y()),
    "beta is added twice in 5 rows from 19 to 23": lambda: in_some_rows(y(beta=2 * BETA), y()),
}
BACKWARD: dict[str, Callable[[], Doubles]] = {
    "s1 is missing": lambda: dx(s1=0.0),
    "s1 divides by N - 1": lambda: dx(s1=WIDTH / (WIDTH - 1)),
    "gamma is off in 32 columns from 32 to 63": lambda: dx(gamma=some_columns(GAMMA, 1.25)),
    "the mean is off in": lambda: dx(rounded_mean()),
    "each row has the rstd of the row after it": lambda: dx(rstd=np.roll(RSTD, -1, axis=0)),
    "row 11 holds the values of row 3": lambda: stale(dx()),
    "a common factor of 0.999": lambda: 0.999 * dx(),
    "s1 is missing in 5 rows from 19 to 23": lambda: in_some_rows(dx(s1=0.0), dx()),
    "epsilon is about 0.004": lambda: dx(rstd=1 / np.sqrt(VARIANCE + 0.004)),
}
COLUMNS: dict[str, Callable[[], Doubles]] = {
    "row 23 is missing from the sum": lambda: dgamma(rows=slice(0, -1)),
    "the mean is subtracted twice": lambda: dgamma(2 * MEAN),
    "the variance divides by N - 1": lambda: dgamma(
        rstd=1 / np.sqrt(VARIANCE * WIDTH / (WIDTH - 1) + EPSILON)
    ),
    "the mean is off in": lambda: dgamma(rounded_mean()),
    "rows 17 to 23 are missing from the sum": lambda: dgamma(rows=slice(0, 17)),
    "rows 8 to 15 are added twice": lambda: dgamma() + dgamma(rows=slice(8, 16)),
    "epsilon is about 0.004": lambda: dgamma(rstd=1 / np.sqrt(VARIANCE + 0.004)),
    "a common factor of 1.001": lambda: 1.001 * dgamma(),
}

FORWARD_GRAPH = NormalizedRows(Rows(X, GAMMA, BETA, EPSILON))
BACKWARD_ROWS = BackwardRows(X, DY, GAMMA, None, None, EPSILON)


def named(graph: Graph, output: Doubles, form: str = "fp32") -> str:
    """Return the words of the diagnosis, "" for none."""
    share = diagnose(graph, round_to(output, form), form, graph.forms[0])
    return "" if share is None else share.words


@pytest.mark.parametrize("words", FORWARD)
def test_a_fault_of_y_is_named(words: str) -> None:
    assert named(FORWARD_GRAPH, FORWARD[words]()).startswith(words)


@pytest.mark.parametrize("words", BACKWARD)
def test_a_fault_of_dx_is_named(words: str) -> None:
    assert named(InputGradient(BACKWARD_ROWS), BACKWARD[words]()).startswith(words)


@pytest.mark.parametrize("words", COLUMNS)
def test_a_fault_of_column_sums_is_named(words: str) -> None:
    graph = ColumnGradient(BACKWARD_ROWS, weighted=True)
    assert named(graph, COLUMNS[words]()).startswith(words)


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("weighted", [True, False], ids=["dgamma", "dbeta"])
def test_gamma_in_a_column_sum_is_named(form: str, weighted: bool) -> None:
    output = GAMMA * (dgamma() if weighted else DY.sum(axis=0, keepdims=True))
    graph = ColumnGradient(BACKWARD_ROWS, weighted=weighted)
    assert named(graph, output, form) == "gamma is in the column sum"


UNRELATED = np.random.default_rng(8).standard_normal((COUNT, WIDTH))


@pytest.mark.parametrize("size", [0.2, 1.0])
@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_an_output_that_has_nothing_to_do_with_the_right_values_has_no_factor(
    size: float, form: str
) -> None:
    column = ColumnGradient(BACKWARD_ROWS, weighted=True)
    # without beta, which is more of the right values than a small output
    graph = NormalizedRows(Rows(X, GAMMA, 0.1 * BETA, EPSILON))
    assert named(graph, size * UNRELATED, form) == ""
    assert named(InputGradient(BACKWARD_ROWS), size * UNRELATED, form) == ""
    assert named(column, size * 5 * UNRELATED[:1], form) == ""


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_a_stale_tail_of_the_columns_is_no_gamma_that_is_off(form: str) -> None:
    output = y()
    output[1:, -4:] = y()[:-1, -4:]
    assert "gamma" not in named(FORWARD_GRAPH, output, form)


@pytest.mark.parametrize("factor", [0.0, 0.01, -0.05, -1.0, 0.4])
def test_a_factor_near_0_is_named_where_it_explains_the_output(factor: float) -> None:
    assert named(InputGradient(BACKWARD_ROWS), factor * dx()) == f"a common factor of {factor:g}"
    column = ColumnGradient(BACKWARD_ROWS, weighted=True)
    assert named(column, factor * dgamma()) == f"a common factor of {factor:g}"


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
def test_rounding_alone_is_no_fault(form: str) -> None:
    assert named(FORWARD_GRAPH, y(), form) == ""
    assert named(InputGradient(BACKWARD_ROWS), dx(), form) == ""
    assert named(ColumnGradient(BACKWARD_ROWS, weighted=True), dgamma(), form) == ""


GROUPS, CHANNEL = 2, 40  # a row is a group of four channels
LABELS = np.arange(COUNT)[:, None] % GROUPS * 4 + np.arange(WIDTH) // CHANNEL
CHANNEL_GAMMA = (1.0 + np.arange(8) / 8)[LABELS]


def group_norm() -> NormalizedRows:
    beta = np.zeros_like(CHANNEL_GAMMA)
    return NormalizedRows(
        Rows(X, CHANNEL_GAMMA, beta, EPSILON, channel_width=CHANNEL, groups=GROUPS)
    )


def grouped(sizes: list[int], shift: int = 0) -> Doubles:
    """Return y with groups of so many channels in each sample, from a channel on."""
    channels = np.roll(X.reshape(-1, GROUPS * 4, CHANNEL), -shift, axis=1)
    parts = []
    for start, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        part = channels[:, start : start + size]
        mean = part.mean(axis=(1, 2), keepdims=True)
        rstd = 1.0 / np.sqrt(part.var(axis=(1, 2), keepdims=True) + EPSILON)
        parts.append((part - mean) * rstd)
    normalized = np.roll(np.concatenate(parts, axis=1), shift, axis=1)
    return normalized.reshape(X.shape) * CHANNEL_GAMMA


def test_a_channel_of_group_norm_is_named() -> None:
    wrong = np.where(LABELS == 5, 1.01 * CHANNEL_GAMMA, CHANNEL_GAMMA)
    words = "gamma is off in channel 5, by a factor of 1.01"
    assert named(group_norm(), (X - MEAN) * RSTD * wrong) == words


@pytest.mark.parametrize(
    ("sizes", "shift", "words"),
    [
        ([2, 2, 2, 2], 0, "the groups are half as wide"),
        ([8], 0, "the groups are twice as wide"),
        ([4, 4], 1, "the groups are shifted by 1 channel"),
        ([4, 4], -1, "the groups are shifted by -1 channel"),
        ([1, 3, 4], 0, "the groups are cut elsewhere: mean and rstd change within a group"),
    ],
)
def test_groups_of_other_channels_are_named(sizes: list[int], shift: int, words: str) -> None:
    assert named(group_norm(), grouped(sizes, shift)) == words


def test_a_few_large_columns_do_not_hide_a_factor_of_all() -> None:
    scale = np.where(np.arange(WIDTH) < 16, 30.0, 1.0)
    rows = Rows(round_to(X * scale, "bf16").astype(np.float64), GAMMA, BETA, EPSILON)
    graph = NormalizedRows(rows)
    right = graph.replay(graph.forms[0]).values
    assert named(graph, 1.002 * right, "bf16").startswith("a common factor of 1.00")


def test_a_factor_that_leaves_a_twentieth_gives_way_to_columns_that_leave_nothing() -> None:
    columns = np.where(np.arange(WIDTH) < 120, 0.9, 0.93)
    assert named(FORWARD_GRAPH, y(gamma=GAMMA * columns)).startswith("gamma is off in")


def test_the_error_is_taken_from_what_the_nearest_program_computes() -> None:
    x = round_to(20.0 + X, "bf16").astype(np.float64)
    graph = NormalizedRows(Rows(x, GAMMA, BETA, EPSILON))
    stored = Program(stored=dict.fromkeys(("mean", "x - mean", "variance", "rstd", "x^"), "bf16"))
    weaker = NormalizedRows(Rows(x, GAMMA, 0.95 * BETA, EPSILON)).replay(stored).values
    output = round_to(weaker, "bf16")
    share = diagnose(graph, output, "bf16", stored)
    assert share is not None
    assert share.words == "beta is off in most columns"
    assert share.share > 0.99
    exact = diagnose(graph, output, "bf16", graph.forms[0])
    assert exact is not None
    assert exact.share < 0.7  # the rest is the rounded mean


def test_the_error_of_a_program_that_is_further_off_than_the_function_is_no_fault() -> None:
    # 10,001 in bf16 is 9,984: less than the squared mean, and the program's variance is 0
    x = 100.0 + np.random.default_rng(3).standard_normal((16, 256))
    graph = NormalizedRows(Rows(x, None, None, 1e-5))
    y = graph.replay(graph.forms[0]).values.astype(np.float32)
    y[8] = y[7]
    further = Program("E[x^2] - mean^2", stored={"mean square": "bf16"})
    for program in (further, graph.forms[0]):
        share = diagnose(graph, round_to(y, "bf16"), "bf16", program)
        assert share is not None
        assert share.words == "row 8 holds the values of row 7"


def test_elements_of_equal_inputs_round_alike_and_fit_no_column_of_gamma() -> None:
    generator = np.random.default_rng(3)
    x = round_to(100 + generator.standard_normal((16, 1000)), "bf16").astype(np.float64)
    gamma = round_to(1 + 0.1 * generator.standard_normal((1, 1000)), "bf16").astype(np.float64)
    graph = NormalizedRows(Rows(x, gamma, None, 1e-5, centered=False))
    y = round_to(1.0015 * graph.replay(graph.forms[0]).values, "bf16")
    share = diagnose(graph, y, "bf16", graph.forms[0])
    assert share is not None
    assert "gamma" not in share.words


def test_a_mean_that_is_further_off_than_its_rounding_hides_behind_no_other_fault() -> None:
    graph = NormalizedRows(Rows(X, GAMMA, 0.4 * BETA, EPSILON))
    output = y(1.2 * MEAN + rounded_mean() - MEAN, beta=0.4 * BETA)
    share = diagnose(graph, round_to(output, "bf16"), "bf16", graph.forms[0])
    assert share is not None
    assert share.words.startswith("the mean is off in")


@pytest.mark.parametrize("fault", ["gamma is shifted by 1 channel", "beta is missing"])
def test_a_fault_of_channels_is_named_beside_stored_statistics(fault: str) -> None:
    # beside this offset the rounding of a stored mean is as large as beta
    generator = np.random.default_rng(7)
    channels, width, groups = 24, 20, 3
    x = round_to(50.0 + generator.standard_normal((2 * groups, 160)), "bf16").astype(np.float64)
    gamma = 1.0 + 0.3 * generator.standard_normal(channels)
    beta = 0.3 * generator.standard_normal(channels)

    def graph_of(gamma: Doubles, beta: Doubles) -> NormalizedRows:
        gammas, betas = (np.repeat(np.tile(a, 2), width).reshape(x.shape) for a in (gamma, beta))
        return NormalizedRows(Rows(x, gammas, betas, EPSILON, channel_width=width, groups=groups))

    stored = Program(stored=dict.fromkeys(("mean", "variance", "rstd", "x^"), "bf16"))
    is_gamma = fault.startswith("gamma")
    wrong = graph_of(np.roll(gamma, 1), beta) if is_gamma else graph_of(gamma, 0.0 * beta)
    graph = graph_of(gamma, beta)
    output = round_to(wrong.replay(stored).values, "bf16")
    share = diagnose(graph, output, "bf16", graph.forms[0])
    assert share is not None
    assert share.words == fault


def test_numbers_fitted_to_few_elements_say_less_than_one_factor() -> None:
    generator = np.random.default_rng(11)
    x = round_to(generator.standard_normal((4, 64)), "bf16").astype(np.float64)
    gamma = round_to(1 + 0.2 * generator.standard_normal((1, 64)), "bf16").astype(np.float64)
    graph = NormalizedRows(Rows(x, gamma, None, 1e-5, centered=False))
    stored = Program(stored={"x^": "bf16"})
    output = round_to(1.004 * graph.replay(stored).values, "bf16")
    share = diagnose(graph, output, "bf16", graph.forms[0])
    assert share is not None
    assert share.words.startswith("a common factor of 1.00")


STATISTICS = ("mean", "x - mean", "square", "variance", "variance + epsilon", "rstd")


def of_sixteen_bits(shape: tuple[int, int], offset: float, seed: int) -> NormalizedRows:
    """Return LayerNorm of x beside an offset, of which all inputs are fp16 values."""
    draw = np.random.default_rng(seed).standard_normal
    x, gamma, beta = offset + draw(shape), 1.0 + 0.1 * draw((1, shape[1])), draw((1, shape[1]))
    x, gamma, beta = (round_to(a, "fp16").astype(np.float64) for a in (x, gamma, beta))
    return NormalizedRows(Rows(x, gamma, beta, EPSILON))


def composite(graph: NormalizedRows) -> Doubles:
    """Return y of a composite in fp16, before its own rounding."""
    stored = Program(stored=dict.fromkeys((*STATISTICS, "x^", "gamma x^"), "fp16"))
    return graph.replay(stored).values


def of_equal_rows() -> NormalizedRows:
    """Return RMSNorm of rows that are each another one times a power of two, in fp16."""
    row = -1.0 + 3.0 * np.arange(33) / 32
    x = round_to(np.outer(np.exp2(np.arange(33) % 4), row), "fp16").astype(np.float64)
    gamma = round_to(np.random.default_rng(4).standard_normal((1, 33)), "fp16")
    return NormalizedRows(Rows(x, gamma.astype(np.float64), None, 1e-6, centered=False))


def test_rows_of_equal_inputs_fit_no_column_of_gamma() -> None:
    # all rows round alike, in each column anew
    graph = of_equal_rows()
    output = round_to(1.0011 * composite(graph), "fp16")
    share = diagnose(graph, output, "fp16", graph.forms[0])
    assert share is not None
    assert share.words.startswith("a common factor of 1.001")


def test_a_few_wrong_columns_of_equal_rows_are_named() -> None:
    graph = of_equal_rows()
    columns = np.where((np.arange(33) >= 20) & (np.arange(33) < 30), 1.2, 1.0)
    output = round_to(columns * composite(graph), "fp16")
    share = diagnose(graph, output, "fp16", graph.forms[0])
    assert share is not None
    assert share.words.startswith("gamma is off in 10 columns from 20 to 29, by a factor of 1.20")


def test_beta_is_told_from_gamma_by_one_factor_where_all_rows_are_equal() -> None:
    # any error of a column is as well one of gamma as one of beta
    rows = of_equal_rows().rows
    beta = np.random.default_rng(5).standard_normal((1, 33))
    graph = NormalizedRows(Rows(rows.x, rows.gamma, beta, EPSILON))
    signs = np.where(np.arange(33) < 17, 1.0, -1.0)
    output = NormalizedRows(Rows(rows.x, rows.gamma, signs * beta, EPSILON))
    words = named(graph, output.replay(graph.forms[0]).values, "fp16")
    assert words.startswith("beta is off in 16 columns from 17 to 32, by a factor of -1")


def test_a_few_columns_of_gamma_are_named_beside_a_stored_mean() -> None:
    graph = of_sixteen_bits((16, 200), 100.0, 1)
    rows, columns = graph.rows, np.where((np.arange(200) >= 40) & (np.arange(200) < 48), 1.1, 1.0)
    wrong = NormalizedRows(Rows(rows.x, columns * rows.gamma, rows.beta, EPSILON))
    output = wrong.replay(Program(stored={"mean": "fp16"})).values
    assert named(graph, output, "fp16").startswith("gamma is off in 8 columns from 40 to 47")


def test_of_faults_without_a_fitted_number_the_likelier_one_is_named() -> None:
    # in this form of dx s1 over N - 1 explains most of a faint error, and comes first
    draw = np.random.default_rng(6).standard_normal
    x, dy, gamma = (
        round_to(a, "bf16").astype(np.float64)
        for a in (3.0 + draw((12, 640)), draw((12, 640)), draw((1, 640)))
    )
    mean = x.mean(axis=1, keepdims=True) * 640 / 639
    rstd = 1.0 / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + EPSILON)
    normalized, product = (x - mean) * rstd, dy * gamma
    s1, s2 = (a.mean(axis=1, keepdims=True) for a in (product, product * normalized))
    graph = InputGradient(BackwardRows(x, dy, gamma, None, None, EPSILON))
    output = rstd * (product - s1 - normalized * s2)
    assert named(graph, output, "bf16") == "the mean divides by N - 1"


def test_a_factor_of_rstd_is_named_beside_a_stored_mean() -> None:
    graph = of_sixteen_bits((16, 512), 3.0, 1)
    beta = graph.rows.beta
    assert beta is not None
    output = round_to(1.001 * (composite(graph) - beta) + beta, "fp16")
    share = diagnose(graph, output, "fp16", graph.forms[0])
    assert share is not None
    assert share.words.startswith("the rstd has a common factor of 1.00")


def test_a_variance_that_leaves_columns_out_is_named_beside_a_stored_mean() -> None:
    # the mean's rounding is a hundred times the energy of the fault
    graph = of_sixteen_bits((9, 341), 100.0, 2)
    rows, beta = graph.rows, graph.rows.beta
    assert beta is not None
    centered = rows.x - rows.x.mean(axis=1, keepdims=True)
    short = np.square(centered[:, :-3]).sum(axis=1, keepdims=True) / 341
    factor = np.sqrt((centered**2).mean(axis=1, keepdims=True) / short)
    output = round_to(factor * (composite(graph) - beta) + beta, "fp16")
    share = diagnose(graph, output, "fp16", graph.forms[0])
    assert share is not None
    assert share.words == "the variance leaves out the last 3 columns"


def test_the_statistic_that_is_off_by_more_than_its_rounding_is_named_first() -> None:
    graph = of_sixteen_bits((4, 64), 3.0, 3)
    x = graph.rows.x
    mean = round_to(x.mean(axis=1, keepdims=True), "fp16").astype(np.float64)
    rstd = 1.0 / np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    signs = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    output = (x - mean) * rstd * (1.0 + 0.003 * signs) * graph.rows.gamma + graph.rows.beta
    share = diagnose(graph, round_to(output, "fp16"), "fp16", graph.forms[0])
    assert share is not None
    assert share.words == "the rstd and the mean of the rows are off"


@pytest.mark.parametrize("term", ["s1", "s2"])
def test_a_wrong_sum_is_named_in_the_form_of_aten(term: str) -> None:
    # b has s1 mean in it: beside an offset nearly all of the error lies along x^
    x, product = 100.0 + X, DY * GAMMA
    mean, s1 = x.mean(axis=1, keepdims=True), product.mean(axis=1, keepdims=True)
    weighted = (product * x).mean(axis=1, keepdims=True)
    if term == "s1":
        s1 = 2.0 * s1
    else:
        weighted = (product * x)[:, :-3].sum(axis=1, keepdims=True) / WIDTH
    b = (s1 * mean - weighted) * RSTD**3
    output = RSTD * product + b * (x - mean) - s1 * RSTD
    graph = InputGradient(BackwardRows(x, DY, GAMMA, None, None, EPSILON))
    words = {"s1": "s1 is subtracted twice", "s2": "s2 leaves out the last 3 columns"}
    assert named(graph, output) == words[term]


def given_dx(
    mean: Doubles = MEAN,
    rstd: Doubles = RSTD,
    s1: Doubles | float = 1.0,
    s2: Doubles | float = 1.0,
    x: Doubles = X,
) -> Doubles:
    product, normalized = DY * GAMMA, (x - mean) * rstd
    first = s1 * product.mean(axis=1, keepdims=True)
    return rstd * (product - first - s2 * normalized * (product * normalized).mean(1)[:, None])


def in_row(values: Doubles, row: int, by: float) -> Doubles:
    changed = values.copy()
    changed[row] += by
    return changed


ONES = np.ones((COUNT, 1))
OFF = 0.05 * np.random.default_rng(8).choice([-1.0, 1.0], (COUNT, 1))
GIVEN: dict[str, Callable[[], Doubles]] = {
    "each row has the mean of the row before it": lambda: given_dx(np.roll(MEAN, 1, axis=0)),
    "each row has the rstd of the row after it": lambda: given_dx(rstd=np.roll(RSTD, -1, axis=0)),
    "the mean is off in most rows": lambda: given_dx(rounded_mean()),
    "the mean is off in row 9": lambda: given_dx(in_row(MEAN, 9, 0.1)),
    "the mean is off in row 10": lambda: given_dx(in_row(MEAN, 10, -7.0)),
    "s1 is off in row 9": lambda: given_dx(s1=in_row(ONES, 9, 0.5)),
    "s1 is off in row 10": lambda: given_dx(s1=in_row(ONES, 10, 60.0)),
    "s1 is off in most rows": lambda: given_dx(s1=1.0 + OFF),
    "s2 is off in row 9": lambda: given_dx(s2=in_row(ONES, 9, -0.7)),
    "s2 is off in most rows": lambda: given_dx(s2=1.0 + OFF),
    "s1 and s2 of the rows are off": lambda: given_dx(s1=1.0 + OFF, s2=1.0 - 2 * OFF[::-1]),
}


@pytest.mark.parametrize("words", GIVEN)
def test_in_dx_a_wrong_mean_that_the_kernel_is_given_is_told_from_s1_and_s2(words: str) -> None:
    rows = BackwardRows(X, DY, GAMMA, MEAN, RSTD, EPSILON)
    assert named(InputGradient(rows), GIVEN[words]()) == words
    computed = BackwardRows(X, DY, GAMMA, None, None, EPSILON)
    assert named(InputGradient(computed), GIVEN[words]()) == words


@pytest.mark.parametrize("is_given", [True, False])
def test_a_mean_that_is_far_off_changes_dx_by_its_square_too(is_given: bool) -> None:
    far = X + np.linspace(-20, 20, COUNT)[:, None]
    mean = far.mean(axis=1, keepdims=True)
    wrong = given_dx(in_row(mean, 4, 13.0), x=far)
    statistics = (mean, RSTD) if is_given else (None, None)
    rows = BackwardRows(far, DY, GAMMA, *statistics, EPSILON)
    assert named(InputGradient(rows), wrong) == "the mean is off in row 4"


def test_in_dgamma_a_wrong_mean_that_the_kernel_is_given_is_named() -> None:
    graph = ColumnGradient(BackwardRows(X, DY, GAMMA, MEAN, RSTD, EPSILON), weighted=True)
    for words, mean in (
        ("each row has the mean of the row before it", np.roll(MEAN, 1, axis=0)),
        ("the mean is off in row 9", in_row(MEAN, 9, 0.1)),
    ):
        assert named(graph, dgamma(mean)) == words


def test_a_known_wrong_mean_is_told_from_s2_where_the_mean_of_x_hat_is_subtracted_again() -> None:
    graph = InputGradient(BackwardRows(X, DY, GAMMA, MEAN, RSTD, EPSILON))
    before = in_row(MEAN, 9, float((MEAN[8] - MEAN[9])[0]))
    for words, mean in (
        ("each row has the mean of the row before it", np.roll(MEAN, 1, axis=0)),
        ("the mean of the row before it is read in row 9", before),
        ("the mean is stored in bf16", rounded_mean()),
    ):
        product, centered = DY * GAMMA, X - mean
        s2 = (product * centered).mean(axis=1, keepdims=True) * RSTD
        again = centered - centered.mean(axis=1, keepdims=True)
        wrong = RSTD * (product - product.mean(axis=1, keepdims=True) - RSTD * again * s2)
        assert named(graph, wrong) == words

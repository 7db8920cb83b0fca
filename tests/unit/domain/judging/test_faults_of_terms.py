"""The diagnosis names each wrong term, statistic and factor of y and dx, of RMSNorm's, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gonogo.judging.term_shares import diagnose
from gonogo.kernels.layernorm.replay import BackwardRows, InputGradient
from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program
from normalized_draws import EPSILON, WIDTH, Doubles, draws

X, DY, GAMMA, BETA = draws(12)
MEAN = X.mean(axis=1, keepdims=True)
SQUARES = np.square(X - MEAN)
VARIANCE, MEAN_SQUARE = (a.mean(axis=1, keepdims=True) for a in (SQUARES, X**2))
PRODUCT = DY * GAMMA
AT_7 = np.where(np.arange(WIDTH) == 7, 1.1, 1.0)
NO_GAMMA = np.ones_like(GAMMA)


def named(graph: Graph, output: Doubles, form: str = "fp32") -> str:
    """Return the words of the diagnosis, "" for none."""
    share = diagnose(graph, round_to(output, form), form, graph.forms[0])
    return "" if share is None else share.words


def rstd_of(variance: Doubles, epsilon: float = EPSILON) -> Doubles:
    return np.asarray(1.0 / np.sqrt(variance + epsilon))


RSTD, RMS = rstd_of(VARIANCE), rstd_of(MEAN_SQUARE)


def without_last(terms: Doubles, width: int) -> Doubles:
    """Return the mean of each row whose sum leaves out some last columns."""
    return terms[:, :-width].sum(axis=1, keepdims=True) / WIDTH


def rolled(values: Doubles, shift: int) -> Doubles:
    return np.roll(values, shift, axis=0)


def scaled(values: Doubles, *rows: tuple[int, float]) -> Doubles:
    """Return values of which some rows have a factor."""
    changed = values.copy()
    for row, factor in rows:
        changed[row] *= factor
    return changed


def noisy(values: Doubles, size: float) -> Doubles:
    """Return values that are off by as much in each row, one way or the other."""
    signs = np.random.default_rng(round(1.0 / size)).choice([-1.0, 1.0], values.shape)
    return values * (1.0 + size * signs)


def y(
    mean: Doubles = MEAN, rstd: Doubles = RSTD, gamma: Doubles = GAMMA, beta: Doubles = BETA
) -> Doubles:
    return (X - mean) * rstd * gamma + beta


def about(mean: Doubles) -> Doubles:
    """Return y with a wrong mean, about which the variance is taken."""
    return y(mean, rstd_of(np.square(X - mean).mean(axis=1, keepdims=True)))


OF_Y: dict[str, Callable[[], Doubles]] = {
    "gamma is missing": lambda: y(gamma=NO_GAMMA),
    "beta is missing": lambda: y(beta=0.0 * BETA),
    "beta is added twice": lambda: y(beta=2.0 * BETA),
    "rstd is missing": lambda: y(rstd=np.ones_like(RSTD)),
    "the mean divides by N - 1": lambda: about(MEAN * WIDTH / (WIDTH - 1)),
    "the mean leaves out the last 32 columns": lambda: about(without_last(X, 32)),
    "each row has the mean of the row after it": lambda: y(rolled(MEAN, -1)),
    "the mean is off in row 3": lambda: y(scaled(MEAN, (3, 1.01))),
    "the variance is taken about 0": lambda: y(rstd=RMS),
    "the variance leaves out the last 32 columns": lambda: y(
        rstd=rstd_of(without_last(SQUARES, 32))
    ),
    "the variance leaves epsilon out": lambda: y(rstd=rstd_of(VARIANCE, 0.0)),
    "epsilon is 0.001": lambda: y(rstd=rstd_of(VARIANCE, 1e-3)),
    "epsilon is 1e-06": lambda: y(rstd=rstd_of(VARIANCE, 1e-6)),
    "the rstd is off in rows 3, 9": lambda: y(rstd=scaled(RSTD, (3, 1.01), (9, 1.02))),
    "the rstd and the mean of the rows are off": lambda: y(noisy(MEAN, 0.04), noisy(RSTD, 0.06)),
    "the mean and the rstd of the rows are off": lambda: y(noisy(MEAN, 0.05), noisy(RSTD, 0.01)),
    "gamma is shifted by -1 column": lambda: y(gamma=np.roll(GAMMA, -1, axis=1)),
    "gamma is shifted by 32 columns": lambda: y(gamma=np.roll(GAMMA, 32, axis=1)),
    "gamma is shifted by -32 columns": lambda: y(gamma=np.roll(GAMMA, -32, axis=1)),
    "row 7 has a factor of 1.01": lambda: scaled(y(), (7, 1.01)),
    "3 rows have factors of their own, from 0.99 to 1.02": lambda: scaled(
        y(), (7, 1.01), (9, 1.02), (11, 0.99)
    ),
}
RMS_Y: dict[str, Callable[[], Doubles]] = {
    "the mean is subtracted": lambda: about(MEAN) - BETA,
    "the mean square divides by N - 1": lambda: rms(rstd_of(MEAN_SQUARE * WIDTH / (WIDTH - 1))),
    "the mean square leaves out the last 12 columns": lambda: rms(rstd_of(without_last(X**2, 12))),
    "the mean square divides by 192, not by 160": lambda: rms(rstd_of(MEAN_SQUARE * WIDTH / 192)),
    "the mean square leaves epsilon out": lambda: rms(rstd_of(MEAN_SQUARE, 0.0)),
    "each row has the rstd of the row before it": lambda: rms(rolled(RMS, 1)),
    "gamma is off in column 7, by a factor of 1.1": lambda: rms(gamma=GAMMA * AT_7),
}


@pytest.mark.parametrize("factor", ["1.000003", "0.99998", "1.0002", "1.23457", "-1", "10"])
def test_a_common_factor_has_the_digits_that_show_it(factor: str) -> None:
    graph = NormalizedRows(Rows(X, GAMMA, BETA, EPSILON))
    words = f"a common factor of {factor}"
    assert named(graph, float(factor) * y()) == words


def rms(rstd: Doubles = RMS, gamma: Doubles = GAMMA) -> Doubles:
    return X * rstd * gamma


@pytest.mark.parametrize("words", OF_Y)
def test_a_fault_of_y_is_named(words: str) -> None:
    assert named(NormalizedRows(Rows(X, GAMMA, BETA, EPSILON)), OF_Y[words]()) == words


@pytest.mark.parametrize("words", RMS_Y)
def test_a_fault_of_rmsnorm_is_named(words: str) -> None:
    graph = NormalizedRows(Rows(X, GAMMA, None, EPSILON, centered=False))
    assert named(graph, RMS_Y[words]()) == words


def dx(rstd: Doubles = RSTD, mean: Doubles = MEAN, gamma: Doubles = GAMMA) -> Doubles:
    product, normalized = DY * gamma, (X - mean) * rstd
    s1, s2 = (a.mean(axis=1, keepdims=True) for a in (product, product * normalized))
    return rstd * (product - s1 - normalized * s2)


NORMALIZED = (X - MEAN) * RSTD
S1, S2 = (a.mean(axis=1, keepdims=True) for a in (PRODUCT, PRODUCT * NORMALIZED))


def of_sums(s1: Doubles = S1, s2: Doubles = S2) -> Doubles:
    """Return dx with wrong sums."""
    return RSTD * (PRODUCT - s1 - NORMALIZED * s2)


OF_DX: dict[str, Callable[[], Doubles]] = {
    "gamma is missing": lambda: dx(gamma=NO_GAMMA),
    "gamma is off in column 7": lambda: dx(gamma=GAMMA * AT_7),
    "the last rstd is missing": lambda: of_sums() / RSTD,
    "s2 is missing": lambda: of_sums(s2=0.0 * S2),
    "s1 is subtracted twice": lambda: of_sums(2.0 * S1),
    "s2 is subtracted twice": lambda: of_sums(s2=2.0 * S2),
    "s1 has the wrong sign": lambda: of_sums(-S1),
    "s2 has the wrong sign": lambda: of_sums(s2=-S2),
    "s2 divides by N - 1": lambda: of_sums(s2=S2 * WIDTH / (WIDTH - 1)),
    "s1 leaves out the last 12 columns": lambda: of_sums(without_last(PRODUCT, 12)),
    "s2 leaves out the last 32 columns": lambda: of_sums(s2=without_last(PRODUCT * NORMALIZED, 32)),
    "each row has the s1 of the row before it": lambda: of_sums(rolled(S1, 1)),
    "each row has the s2 of the row after it": lambda: of_sums(s2=rolled(S2, -1)),
    "the mean is missing": lambda: dx(mean=0.0 * MEAN),
    "the variance divides by N - 1": lambda: dx(rstd_of(VARIANCE * WIDTH / (WIDTH - 1))),
    "epsilon is added outside the root": lambda: dx(1.0 / (np.sqrt(VARIANCE) + EPSILON)),
    "the rstd is off in row 3": lambda: dx(scaled(RSTD, (3, 1.05))),
    "row 7 has a factor of 1.01": lambda: scaled(dx(), (7, 1.01)),
}
OF_RMS = X * RMS
S2_OF_RMS = (PRODUCT * OF_RMS).mean(axis=1, keepdims=True)


def rms_dx(rstd: Doubles = RMS, gamma: Doubles = GAMMA) -> Doubles:
    product, normalized = DY * gamma, X * rstd
    return rstd * (product - normalized * (product * normalized).mean(axis=1, keepdims=True))


def of_s2(s2: Doubles) -> Doubles:
    """Return RMSNorm's dx with a wrong sum."""
    return RMS * (PRODUCT - OF_RMS * s2)


RMS_DX: dict[str, Callable[[], Doubles]] = {
    "s2 divides by N - 1": lambda: of_s2(S2_OF_RMS * WIDTH / (WIDTH - 1)),
    "s2 divides by 192, not by 160": lambda: of_s2(S2_OF_RMS * WIDTH / 192),
    "s2 has the wrong sign": lambda: of_s2(-S2_OF_RMS),
    "s2 leaves out the last 12 columns": lambda: of_s2(without_last(PRODUCT * OF_RMS, 12)),
    "s2 is off in row 5": lambda: of_s2(scaled(S2_OF_RMS, (5, 1.5))),
    "the last rstd is missing": lambda: of_s2(S2_OF_RMS) / RMS,
    "the mean square divides by N - 1": lambda: rms_dx(rstd_of(MEAN_SQUARE * WIDTH / (WIDTH - 1))),
    "the rstd is off in row 3": lambda: rms_dx(scaled(RMS, (3, 1.05))),
    "each row has the rstd of the row before it": lambda: rms_dx(rolled(RMS, 1)),
    "epsilon is about 0.004": lambda: rms_dx(rstd_of(MEAN_SQUARE, 0.004)),
    "gamma is missing": lambda: rms_dx(gamma=NO_GAMMA),
    "gamma - 1 is in the place of gamma": lambda: rms_dx(gamma=GAMMA - 1.0),
    "gamma is off in column 7": lambda: rms_dx(gamma=GAMMA * AT_7),
    "row 7 has a factor of 1.01": lambda: scaled(rms_dx(), (7, 1.01)),
}


@pytest.mark.parametrize("words", OF_DX)
def test_a_fault_of_dx_is_named(words: str) -> None:
    graph = InputGradient(BackwardRows(X, DY, GAMMA, None, None, EPSILON))
    assert named(graph, OF_DX[words]()) == words


@pytest.mark.parametrize("words", RMS_DX)
def test_a_fault_of_the_gradient_of_rmsnorm_is_named(words: str) -> None:
    graph = InputGradient(BackwardRows(X, DY, GAMMA, None, None, EPSILON, centered=False))
    assert named(graph, RMS_DX[words]()) == words


@pytest.mark.parametrize("term", ["s1", "s2"])
def test_a_missing_sum_is_named_in_the_form_of_aten(term: str) -> None:
    # s2 comes from E[P x] - s1 mean there: beside an offset s1 is in both
    x = 30.0 + X
    mean = x.mean(axis=1, keepdims=True)
    s1 = (term != "s1") * S1
    s2 = (PRODUCT * x).mean(axis=1, keepdims=True) * (term != "s2") - s1 * mean
    output = RSTD * (PRODUCT - s1 - NORMALIZED * RSTD * s2)
    graph = InputGradient(BackwardRows(x, DY, GAMMA, None, None, EPSILON))
    assert named(graph, output) == f"{term} is missing"


def test_a_wrong_mean_is_named_before_the_rstd_that_follows_from_it() -> None:
    # beside an offset the mean's own rounding is larger than that of rstd
    x = 16.0 * (100.0 + X)
    signs = np.random.default_rng(8).choice([-1.0, 1.0], MEAN.shape)
    mean = x.mean(axis=1, keepdims=True) + 0.3 * signs * x.std(axis=1, keepdims=True)
    output = (x - mean) * rstd_of(np.square(x - mean).mean(axis=1, keepdims=True)) * GAMMA
    graph = NormalizedRows(Rows(x, GAMMA, None, EPSILON))
    assert named(graph, output) == "the mean and the rstd of the rows are off"


def test_rows_of_one_element_have_faults_without_n_less_1() -> None:
    x, dy, gamma, beta = (a[:, :1] for a in (X, DY, GAMMA, BETA))
    forward = NormalizedRows(Rows(x, gamma, beta, EPSILON))
    right = forward.replay(forward.forms[0]).values
    assert named(forward, 2.0 * right) == "beta is added twice"
    of_rms = NormalizedRows(Rows(x, gamma, None, EPSILON, centered=False))
    assert named(of_rms, 1.001 * of_rms.replay(of_rms.forms[0]).values) == (
        "a common factor of 1.001"
    )
    backward = InputGradient(BackwardRows(x, dy, gamma, None, None, EPSILON, centered=False))
    assert named(backward, 2.0 * backward.replay(backward.forms[0]).values) == (
        "a common factor of 2"
    )


def test_another_epsilon_in_rows_of_nearly_equal_variance_is_a_factor() -> None:
    base = np.random.default_rng(2).standard_normal(WIDTH)
    rows = np.stack([np.random.default_rng(seed).permutation(base) for seed in range(24)])
    for spread, words in ((1e-5, "a common factor of 0.999"), (1e-4, "epsilon is about 0.002")):
        x = (rows - base.mean()) / base.std() * (1.0 + spread * np.linspace(-1, 1, 24)[:, None])
        output = (x - x.mean(1)[:, None]) * rstd_of(x.var(1)[:, None], 0.002) * GAMMA
        assert named(NormalizedRows(Rows(x, GAMMA, None, EPSILON)), output).startswith(words)


CHANNEL = 32


def of_channels(gamma: Doubles, beta: Doubles, groups: int, x: Doubles = X) -> NormalizedRows:
    """Return group norm of channels as long as a tile; gamma, beta: one value for each."""
    per_group = WIDTH // CHANNEL
    labels = np.arange(len(x))[:, None] % groups * per_group + np.arange(WIDTH) // CHANNEL
    rows = Rows(x, gamma[labels], beta[labels], EPSILON, channel_width=CHANNEL, groups=groups)
    return NormalizedRows(rows)


@pytest.mark.parametrize("shift", [1, -1])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_gamma_of_the_next_channel_is_no_gamma_of_another_column(groups: int, shift: int) -> None:
    gamma, beta = GAMMA[0, : 5 * groups], BETA[0, : 5 * groups]
    wrong = of_channels(np.roll(gamma, shift), beta, groups)
    output = wrong.replay(wrong.forms[0]).values
    words = f"gamma is shifted by {shift} channel"
    assert named(of_channels(gamma, beta, groups), output) == words


def test_rows_that_are_no_whole_samples_have_no_neighboring_groups() -> None:
    graph = of_channels(GAMMA[0, :10], BETA[0, :10], 2, X[:5])
    output = 1.001 * graph.replay(graph.forms[0]).values
    assert named(graph, output) == "a common factor of 1.001"


@pytest.mark.parametrize("shift", [1, -1])
def test_shifted_groups_are_named_beside_beta(shift: int) -> None:
    gamma, beta = GAMMA[0, :10], BETA[0, :10]
    channels = np.roll(X.reshape(-1, 10, CHANNEL), -shift, axis=1).reshape(X.shape)
    mean, rstd = channels.mean(axis=1, keepdims=True), rstd_of(channels.var(axis=1)[:, None])
    normalized = np.roll(((channels - mean) * rstd).reshape(-1, 10, CHANNEL), shift, axis=1)
    rows = of_channels(gamma, beta, 2).rows
    output = normalized.reshape(X.shape) * rows.gamma + rows.beta
    words = f"the groups are shifted by {shift} channel"
    assert named(of_channels(gamma, beta, 2), output) == words


def test_a_kernel_without_groups_has_none_of_another_width() -> None:
    halves = X.reshape(len(X), 2, -1)
    mean, rstd = halves.mean(axis=2, keepdims=True), rstd_of(halves.var(axis=2)[..., None])
    output = ((halves - mean) * rstd).reshape(X.shape) * GAMMA + BETA
    assert "group" not in named(NormalizedRows(Rows(X, GAMMA, BETA, EPSILON)), output)


def test_one_of_two_rows_has_a_factor() -> None:
    graph = NormalizedRows(Rows(X[:2], GAMMA, BETA, EPSILON))
    assert named(graph, scaled(y()[:2], (1, 1.01))) == "row 1 has a factor of 1.01"


def test_most_columns_that_are_off_have_no_factor_in_common() -> None:
    gamma = np.where(np.arange(WIDTH) < 120, 1.1, 1.0) * GAMMA
    graph = NormalizedRows(Rows(X, GAMMA, BETA, EPSILON))
    assert named(graph, y(gamma=gamma)) == "gamma is off in most columns"


def test_an_epsilon_of_any_size_is_named() -> None:
    x, variance = 1e-4 * X, 1e-8 * VARIANCE
    for epsilon in ("2e-08", "0.0002"):
        output = (x - 1e-4 * MEAN) * rstd_of(variance, float(epsilon)) * GAMMA
        graph = NormalizedRows(Rows(x, GAMMA, None, EPSILON))
        assert named(graph, output) == f"epsilon is about {epsilon}"


def test_as_many_rows_as_columns_show_a_gamma_that_is_off_in_dx() -> None:
    x, dy, gamma, wrong = (a[:, :24] for a in (X, DY, GAMMA, GAMMA * AT_7))
    graph, off = (
        InputGradient(BackwardRows(x, dy, value, None, None, EPSILON)) for value in (gamma, wrong)
    )
    assert named(graph, off.replay(off.forms[0]).values) == "gamma is off in column 7"


@pytest.mark.parametrize("name", ["mean", "rstd"])
def test_one_of_two_rows_has_the_statistic_of_the_other(name: str) -> None:
    x = X[:2] * np.array([[1.0], [3.0]])
    mean, rstd = x.mean(axis=1, keepdims=True), rstd_of(x.var(axis=1)[:, None])
    graph = NormalizedRows(Rows(x, GAMMA, BETA, EPSILON))
    wrong = {"mean": mean, "rstd": rstd}
    wrong[name] = wrong[name][[0, 0]]
    output = (x - wrong["mean"]) * wrong["rstd"] * GAMMA + BETA
    assert named(graph, output) == f"row 1 has the {name} of row 0"


def test_a_single_row_has_no_index_that_takes_the_place_of_a_column() -> None:
    graph = NormalizedRows(Rows(X[:1], GAMMA, BETA, EPSILON))
    assert "index of the row" not in named(graph, y(gamma=GAMMA[:, :1])[:1])
    assert "index of the row" not in named(graph, y(beta=BETA[:, :1])[:1])


@pytest.mark.parametrize("name", ["gamma", "beta"])
def test_values_of_channels_that_are_off_are_named_beside_stored_statistics(name: str) -> None:
    # beside this offset the rounding of a stored mean is as large as what they make
    draw = np.random.default_rng(0).standard_normal
    x = round_to(50.0 + X[:6], "bf16").astype(np.float64)
    values = {"gamma": 1.0 + 0.3 * draw(15), "beta": 0.3 * draw(15)}
    wrong = values | {name: values[name] + 0.1 * draw(15)}
    stored = Program(stored=dict.fromkeys(("mean", "variance", "rstd", "x^"), "bf16"))
    output = of_channels(**wrong, groups=3, x=x).replay(stored).values
    words = f"{name} is off in most channels"
    assert named(of_channels(**values, groups=3, x=x), output, "bf16") == words


def test_columns_of_other_values_are_no_gamma_that_is_off() -> None:
    output = y(beta=0.0 * BETA)
    output[:, -4:] = 0.2 * DY[:, -4:]
    assert named(NormalizedRows(Rows(X, GAMMA, None, EPSILON)), output) == ""


def test_a_few_columns_that_are_off_are_named_where_all_rows_are_alike() -> None:
    # a number for each column would fit anything
    x = np.exp2(np.arange(8) % 4)[:, None] * X[:1]
    gamma = GAMMA * np.where(np.arange(WIDTH) == 20, 1.3, AT_7)
    graph, off = (
        NormalizedRows(Rows(x, value, None, 0.0, centered=False)) for value in (GAMMA, gamma)
    )
    assert named(graph, off.replay(off.forms[0]).values) == "gamma is off in columns 7, 20"


@pytest.mark.parametrize(
    ("output", "is_coherent"),
    [
        (dx(scaled(RSTD, (3, 1.05))), False),
        (scaled(dx(), (7, 1.01)), False),
        (1.01 * dx(), True),
        (of_sums(2.0 * S1), True),
    ],
)
def test_rows_with_a_statistic_of_their_own_have_no_fault_in_common(
    output: Doubles, *, is_coherent: bool
) -> None:
    graph = InputGradient(BackwardRows(X, DY, GAMMA, None, None, EPSILON))
    share = diagnose(graph, round_to(output, "fp32"), "fp32", graph.forms[0])
    assert share is not None
    assert share.is_coherent is is_coherent

"""The search for an arithmetic: how programs fit, which are yielded, and how it climbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import ulp
from gonogo.numerics.replay import search
from gonogo.numerics.replay.program import Order, Program
from gonogo.numerics.replay.search import COLUMNS, MAX_STEPS, PROGRESS, Fit
from normalized_rows import EPSILON, OTHER, PLAIN, STORING, Floats, graph_of, output_of

Stored = Mapping[str, str]


def sample_of(graph: NormalizedRows, y: Floats, form: str) -> search.Sample:
    return search.Sample(graph, y, np.arange(y.shape[1]), form)


# The fit of a program


def test_the_loss_of_an_element_that_is_less_than_a_step_off_is_that_part() -> None:
    graph = graph_of(8)
    exact, y = graph.replay(PLAIN).values, output_of(graph, PLAIN)
    step = ulp(y, "bf16")
    moved = y + np.sign(exact - y) * step  # to the other neighbor of the exact value
    row, column = np.unravel_index(np.argmax(np.abs(y - exact) / step < 0.2), y.shape)
    y[row, column] = moved[row, column]
    off = abs(y[row, column] - exact[row, column]) / step[row, column]
    assert 0.8 < off < 1
    fit = sample_of(graph, y, "bf16").fit(PLAIN)
    assert fit.loss == pytest.approx(off / y.size)
    assert fit.mismatch == 1 / y.size


def test_noise_is_small_or_large_beside_the_steps_of_the_narrow_format() -> None:
    graph = graph_of(8)
    fits = {
        (form, program.name): sample_of(graph, output_of(graph, program, form), form).fit(program)
        for form in ("bf16", "fp32")
        for program in (PLAIN, STORING)
    }
    assert [fit.quiet for fit in fits.values()] == [1.0, 1.0, 0.0, 1.0]
    assert {fit.mismatch for fit in fits.values()} == {0.0}


def test_elements_near_ties_are_not_decided() -> None:
    """Two elements of the first row lie in the middle between two values of bf16."""
    x = np.tile([1.0, -1.0], (8, 32))
    x[0, :2] *= 1 + 2.0**-8
    graph = NormalizedRows(Rows(x, None, None, EPSILON, True))
    program = replace(PLAIN, stored={"x - mean": "bf16"})
    y = output_of(graph, PLAIN, "fp32")
    assert sample_of(graph, y, "fp32").fit(program).decided == 7 / 8


def test_a_program_gains_what_the_usual_one_misses() -> None:
    graph = graph_of(8)
    sample = sample_of(graph, output_of(graph, PLAIN), "bf16")
    assert sample.fit(STORING).gained == 1.0
    stored = sample_of(graph, output_of(graph, STORING, "fp32"), "fp32")
    assert stored.fit(STORING).gained > 0.9
    assert stored.fit(PLAIN).gained == 0.0


def test_programs_that_differ_in_the_output_s_rounding_share_a_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, replayed = graph_of(8), list[Program]()
    replay = NormalizedRows.replay

    def recorded(self: NormalizedRows, program: Program, *rest: Any, **options: Any) -> Any:
        replayed.append(program)
        return replay(self, program, *rest, **options)

    monkeypatch.setattr(NormalizedRows, "replay", recorded)
    truncated = replace(STORING, rounding="zero", output_rounding="zero")
    programs = [truncated, replace(truncated, output_rounding="even"), STORING, truncated]
    output = output_of(graph, STORING)
    sample = sample_of(graph, output, "bf16")
    replayed.clear()
    shares = [sample.mismatch(program) for program in programs]
    assert [program.rounding for program in replayed] == ["zero", "even", "zero"]
    alone = [sample_of(graph, output, "bf16").fit(program).mismatch for program in programs]
    assert shares == alone
    assert len({*shares[:3]}) == 3


def test_a_sample_has_columns_from_the_first_to_the_last() -> None:
    graph = graph_of(3, 400)
    for sample in search.samples(graph, output_of(graph, PLAIN), "bf16"):
        assert (sample.columns[0], sample.columns[-1]) == (0, 399)
        assert len(sample.columns) == COLUMNS


# Programs that are yielded


def test_only_programs_that_reproduce_every_sample_are_yielded() -> None:
    graph = graph_of(40)
    y = output_of(graph, STORING)
    likely = (OTHER, STORING, PLAIN)
    assert list(search.candidates(graph, y, "bf16", [], likely)) == [STORING]
    checked = np.linspace(0, 39, 16).astype(int)[1::2]
    # row 37 is in no sample
    for rows, expected in ((checked.tolist(), []), ([0], []), ([37], [STORING])):
        spoiled = y.copy()
        spoiled[rows] = output_of(graph, OTHER)[rows]
        assert list(search.candidates(graph, spoiled, "bf16", [], likely)) == expected


def test_running_sums_stay_in_fp32() -> None:
    mixed = replace(PLAIN, stored={"sum of x": "bf16", "mean": "bf16"})
    assert list(search.running([mixed, PLAIN, STORING])) == [
        replace(program, order=order)
        for order in (Order.running, Order.running_mean)
        for program in (PLAIN, STORING)
    ]


def test_programs_truncate_what_they_store_or_their_output() -> None:
    def modes(form: str) -> list[tuple[bool, str, str]]:
        programs = search._truncated([PLAIN, STORING], form)
        return [(bool(p.stored), p.rounding, p.output_rounding) for p in programs]

    plain, stored = (False, "zero", "zero"), (True, "zero", "zero")
    assert modes("bf16") == [plain, stored, (True, "zero", "even")]
    assert modes("fp32") == [(True, "zero", "even")]


def test_a_search_also_starts_from_a_variance_of_x_itself() -> None:
    forms = graph_of(2).forms
    usual = [replace(base, variance="x") for base in forms if base.variance == Program.variance]
    assert search._bases(graph_of(2)) == [
        *forms,
        *(base for base in usual if base not in forms),
    ]


# The climb, on fits that are given


class Fits:
    """A sample in which the fits of programs are known: the loss, and whether one is earned."""

    def __init__(self, losses: Mapping[str, float], right: str = "") -> None:
        self._losses, self._right = losses, right
        self.tried: list[str] = []

    def fit(self, program: Program) -> Fit:
        """Return the fit of a program by the letters that it stores."""
        name = "".join(sorted(program.stored))
        self.tried.append(name)
        loss = self._losses.get(name, 1.0)
        return Fit(program, 0.0 if name == self._right else 1.0, 1.0, 1.0, 1.0, loss)


def letters(names: str) -> Callable[[Stored], Iterator[Stored]]:
    """The steps that store one more letter."""

    def larger(stored: Stored) -> Iterator[Stored]:
        for name in names:
            if name not in stored:
                yield {**stored, name: "bf16"}

    return larger


def climbed(fits: Any, names: str) -> str | None:
    program = search._climbed(fits, Program(), letters(names))
    return None if program is None else "".join(sorted(program.stored))


def test_a_climb_goes_on_where_a_step_lowers_the_loss_enough() -> None:
    for share, expected in ((0.99, "ab"), (1.01, None)):
        fits = Fits({"": 1.0, "a": share * PROGRESS, "ab": 0.5}, right="ab")
        assert climbed(fits, "ab") == expected
        assert ("ab" in fits.tried) == (expected is not None)


def test_a_climb_stops_at_the_first_program_that_is_earned() -> None:
    fits = Fits({"a": 0.1, "ab": 0.01}, right="a")
    assert climbed(fits, "ab") == "a"
    assert fits.tried == ["", "a", "b"]
    assert climbed(Fits({}, right=""), "ab") == ""


def test_a_climb_without_a_further_step_finds_nothing() -> None:
    assert climbed(Fits({"": 1.0, "a": 0.1}, right="none"), "a") is None
    assert climbed(Fits({}, right="none"), "") is None


def test_a_climb_keeps_the_three_best_programs_and_tries_each_set_once() -> None:
    losses = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4, "ce": 0.01}
    fits = Fits(losses, right="ce")
    assert climbed(fits, "abcde") == "ce"
    assert climbed(Fits({**losses, "de": 0.001, "ce": 0.09}, right="de"), "abcde") is None
    assert len(fits.tried) == len(set(fits.tried))


@pytest.mark.parametrize(("more", "is_found"), [(0, True), (1, False)])
def test_the_best_program_of_the_last_step_is_the_one_that_counts(
    more: int, is_found: bool
) -> None:
    names = "abcdefghij"[: MAX_STEPS + more]
    losses = {names[:count]: 0.8**count for count in range(1, len(names) + 1)}
    assert climbed(Fits(losses, right=names), names + "z") == (names if is_found else None)
    # nor does another program of the same step
    second = names[:-1] + "z"
    losses |= {second: 0.9 * losses[names[:-1]]}
    assert climbed(Fits(losses, right=second), names + "z") is None

"""Reduction forensics: which term of a LayerNorm kernel is wrong, and which tiles were summed.

One output is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics.backward import explain_dx
from gonogo.kernels.layernorm.forensics.backward_sums import Backward
from gonogo.kernels.layernorm.forensics.down import explain_down, partial_sums
from gonogo.kernels.layernorm.forensics.forward import explain_mean, explain_rstd, explain_y
from gonogo.kernels.layernorm.forensics.forward_sums import Forward
from gonogo.kernels.layernorm.forensics.precision import Precision
from gonogo.kernels.layernorm.forensics.sums import TILE, row_moments
from gonogo.kernels.layernorm.forensics.words import place as where
from gonogo.numerics.diagnosis import Diagnosis, Term, join
from gonogo.spec.diagnoses import PARTLY, RIGHT

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

__all__ = ["RIGHT", "Diagnosis", "Term", "diagnose"]

Arrays = Mapping[str, NDArray[np.floating]]
OF_ROWS = ("y", "dx", "mean", "rstd")
"""The outputs whose values each belong to a row of x."""


def diagnose(test: TestSpec, given: Arrays, outputs: Arrays, *, centered: bool = True) -> Diagnosis:
    """Return what is wrong with `outputs` (any subset) of the test's kernel on `given`.

    centered: whether the kernel subtracts a mean; RMSNorm's backward pass doesn't.

    Arrays are as the device has them, float32, in 2-D: x, dy, y, dx (rows, N); gamma, beta, dgamma,
    dbeta (N,); mean, rstd (rows,). Everything is computed in float64. Never raises: outputs of a
    wrong shape or without finite values, and inputs that can't tell anything, are described in
    words.
    """
    x = given.get("x")
    if x is None or x.ndim != 2 or not x.size:
        return Diagnosis((), "cannot tell: there is no x", False)
    rows, features = x.shape
    shapes = {
        "y": (rows, features),
        "dx": (rows, features),
        "dgamma": (features,),
        "dbeta": (features,),
        "mean": (rows,),
        "rstd": (rows,),
    }
    good, terms = readable(outputs, shapes.get, flat_rows(x, centered=centered))
    residuals: dict[str, dict[str, float | None]] = {}
    if "dy" in test.drawn_names:
        terms.extend(_backward(test, given, good, residuals, centered))
    else:
        terms.extend(_forward(test, given, good, residuals))
    return concluded(terms, residuals)


def flat_rows(x: NDArray[np.floating], *, centered: bool) -> NDArray[np.bool_]:
    """Return which rows of x have no variance, or no mean square: only epsilon is in their root."""
    return np.asarray(x.min(axis=1) == x.max(axis=1) if centered else ~x.any(axis=1))


def readable(
    outputs: Arrays,
    shape_of: Callable[[str], tuple[int, ...] | None],
    flat: NDArray[np.bool_],
) -> tuple[dict[str, NDArray[np.floating]], list[Term]]:
    """Return the outputs of the right shape with finite values, and what is wrong with the rest.

    flat: the rows in whose root is only epsilon.
    """
    good: dict[str, NDArray[np.floating]] = {}
    terms: list[Term] = []
    for name, values in outputs.items():
        if shape_of(name) != values.shape:
            words = f"cannot tell {name}: its shape is {list(values.shape)}"
            terms.append(Term(name, name, 0, (), (), words, can_tell=False))
            continue
        terms.extend(not_finite(name, values, flat))
        if np.isfinite(values).any():
            good[name] = values
    return good, terms


def _backward(
    test: TestSpec,
    given: Arrays,
    outputs: Arrays,
    residuals: dict[str, dict[str, float | None]],
    centered: bool,
) -> list[Term]:
    x, dy, gamma = given["x"], given["dy"], _wide(given["gamma"])
    mean, rstd = row_moments(x, test.epsilon)
    with np.errstate(all="ignore"):
        if test.numerics.statistics == "given" and "rstd" in given:
            rstd = _wide(given["rstd"])
            mean = _wide(given["mean"]) if "mean" in given else mean
        elif not centered:
            rstd = 1.0 / np.sqrt(np.square(x, dtype=np.float64).mean(axis=1) + test.epsilon)
    precision = Precision.of(test)
    terms: list[Term] = []
    if "dx" in outputs:
        dx_terms, residuals["dx"] = explain_dx(
            Backward(
                x,
                dy,
                gamma,
                mean if centered else np.zeros_like(mean),
                rstd,
                outputs["dx"],
                precision,
                centered=centered,
            )
        )
        terms.extend(dx_terms)
    down = [name for name in ("dgamma", "dbeta") if name in outputs]
    if down:
        sums = partial_sums(x, dy, mean, rstd, centered=centered)
        terms.extend(
            explain_down(name, _wide(outputs[name]), sums, precision, "", centered=centered)
            for name in down
        )
    return terms


def _forward(
    test: TestSpec, given: Arrays, outputs: Arrays, residuals: dict[str, dict[str, float | None]]
) -> list[Term]:
    gamma, beta = _wide(given["gamma"]), _wide(given["beta"])
    seed = Forward(given["x"], gamma, beta, test.epsilon, outputs.get("y"), Precision.of(test))
    terms: list[Term] = []
    if "y" in outputs:
        y_terms, residuals["y"] = explain_y(seed)
        terms.extend(y_terms)
    if "mean" in outputs or "rstd" in outputs:
        seed.y = None
        rows = seed.sums(gamma, beta)
        if "mean" in outputs:
            terms.append(explain_mean(seed, rows, _wide(outputs["mean"])))
        if "rstd" in outputs:
            mean = _wide(outputs["mean"]) if "mean" in outputs else None
            terms.append(explain_rstd(seed, rows, _wide(outputs["rstd"]), mean))
    return terms


def concluded(terms: list[Term], residuals: dict[str, dict[str, float | None]]) -> Diagnosis:
    """Return the diagnosis of all terms, wrong ones first.

    Terms that can't be determined are mentioned where something is wrong, or where no term could be
    determined.
    """
    wrong = [
        term
        for index, term in enumerate(terms)
        if term.wrong and not _measured_better(index, terms)
    ]
    silent = [term.words for term in terms if not term.can_tell]
    if wrong:
        order = [term.name for term in terms if term.wrong]
        wrong.sort(key=lambda term: order.index(term.name))
        return Diagnosis(
            tuple(terms),
            join(term.words for term in wrong),
            all(term.can_tell for term in wrong),
            residuals,
        )
    if any(term.can_tell and term.coefficients for term in terms if term.name != "scale"):
        hidden = [term.words for term in terms if term.hidden or term.coarse]
        return Diagnosis(
            tuple(terms), join([PARTLY, *hidden] if hidden else [RIGHT]), not hidden, residuals
        )
    return Diagnosis(
        tuple(terms), join(silent) or "cannot tell: there are no outputs", False, residuals
    )


def _measured_better(index: int, terms: list[Term]) -> bool:
    """Return whether another output has the same wrong term with smaller errors.

    For example, y and the output mean both have the mean.
    """
    term = terms[index]
    same = [
        (_error(other), place)
        for place, other in enumerate(terms)
        if other.wrong and other.name == term.name and other.name in ("mean", "variance")
    ]
    return bool(same) and min(same) < (_error(term), index)


def _error(term: Term) -> float:
    known = sorted(error for error in term.errors if error is not None)
    return known[len(known) // 2] / max(1, term.group) if known else np.inf


def _wide(values: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(values, np.float64)


def not_finite(name: str, values: NDArray[np.floating], flat: NDArray[np.bool_]) -> list[Term]:
    """Return a finding where values are NaN or infinite: how many, and in which tiles or rows.

    flat: the rows in whose root is only epsilon.
    """
    finite = np.isfinite(values)
    if finite.all():
        return []
    matrix = ~np.atleast_2d(finite)
    rows, columns = np.flatnonzero(matrix.any(axis=1)), np.flatnonzero(matrix.any(axis=0))
    count = int(matrix.sum())
    parts = []
    if values.ndim == 2:
        parts.append(
            where(sorted(set((rows // TILE).tolist())), -(-matrix.shape[0] // TILE), "row tile")
        )
    parts.append(
        where(
            sorted(set((columns // TILE).tolist())),
            -(-matrix.shape[1] // TILE),
            "column tile" if values.ndim == 2 else "tile",
        )
    )
    places = f"in {', '.join(parts)}"
    if name in OF_ROWS and not (~finite.reshape(len(flat), -1))[~flat].any():
        places = "only in rows of equal values, as without epsilon"
    words = (
        f"{count} of {values.size} values of {name} {'is' if count == 1 else 'are'} not finite, "
        f"{places}"
    )
    return [
        Term(
            name,
            "finite",
            0,
            (),
            (),
            words,
            wrong=True,
            rows=tuple((rows[:64] + 1).tolist()) if values.ndim == 2 else (),
        )
    ]

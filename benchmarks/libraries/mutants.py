"""The mutants: which sources there are, and which one-line edits make them wrong.

A source is a right kernel of `sources.py` with an order of sums and a set of stored values. An
edit knows the term that it makes wrong. Whether it changes anything on given inputs in exact
arithmetic is computed, not declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np

from benchmarks.libraries import sources
from benchmarks.libraries.cases import KINDS, Case, Doubles, Tensors, cases, inputs, narrowed
from benchmarks.libraries.sources import SUMS, Step


@dataclass(frozen=True)
class Source:
    """A right kernel that can be edited.

    group: "fp32-inside" or "16-bit-storing".
    """

    name: str
    kind: str
    function: sources.Source
    sums: str = "pairwise"
    stored: tuple[str, ...] = ()
    updates: bool = False

    def suits(self, number_format: str) -> bool:
        """Return whether the source differs from one that stores nothing, in this format."""
        return not (self.stored and number_format == "fp32")

    @property
    def group(self) -> str:
        """Where the source rounds: at its end only, or inside."""
        return "16-bit-storing" if self.stored else "fp32-inside"


COMPOSITE = ("mean", "centered", "square", "variance", "shifted", "rstd", "xhat", "scaled")
"""Each operation of a composite stores its result."""

SOURCES: Final = (
    Source("fp32", "layernorm_fw", sources.layernorm_fw),
    Source("fp32 lanes", "layernorm_fw", sources.layernorm_fw, "lanes"),
    Source("composite", "layernorm_fw", sources.layernorm_fw, stored=COMPOSITE),
    Source("mlx-like", "layernorm_fw", sources.layernorm_fw, "running", ("xhat", "scaled")),
    Source("fp32", "rmsnorm_fw", sources.rmsnorm_fw),
    Source("fp32 lanes", "rmsnorm_fw", sources.rmsnorm_fw, "lanes"),
    Source("llama-like", "rmsnorm_fw", sources.rmsnorm_fw, stored=("xhat",)),
    Source("composite", "rmsnorm_fw", sources.rmsnorm_fw, stored=COMPOSITE),
    Source("fp32", "groupnorm_fw", sources.groupnorm_fw),
    Source("fp32 lanes", "groupnorm_fw", sources.groupnorm_fw, "lanes"),
    Source("composite", "groupnorm_fw", sources.groupnorm_fw, stored=COMPOSITE),
    Source("fp32", "layernorm_bw", sources.layernorm_bw),
    Source("fp32 lanes", "layernorm_bw", sources.layernorm_bw, "lanes"),
    Source("fp32 aten form", "layernorm_bw", sources.aten_bw),
    Source("aten-like", "layernorm_bw", sources.aten_bw, stored=("mean", "rstd", "column")),
    Source("liger-like", "layernorm_bw", sources.layernorm_bw, stored=("mean", "rstd")),
    Source("mlx-like", "layernorm_bw", sources.layernorm_bw, "running", ("p",)),
    Source("fp32", "rmsnorm_bw", sources.rmsnorm_bw),
    Source("fp32 lanes", "rmsnorm_bw", sources.rmsnorm_bw, "lanes"),
    Source("llama-like", "rmsnorm_bw", sources.rmsnorm_bw, stored=("rstd", "xhat", "p")),
)


PEERS: Final = (
    Source("fp32 Welford", "layernorm_fw", sources.layernorm_fw, updates=True),
    Source("fp32 Welford", "groupnorm_fw", sources.groupnorm_fw, updates=True),
    Source("fp32 Welford", "layernorm_bw", sources.layernorm_bw, updates=True),
)
"""Right kernels that are run beside the libraries' own, for the error that a right one may have.

An updated mean is rounded at each step: on a ramp all roundings have one sign, and no library here
has a single lane. A kernel whose arithmetic is unknown may have one.
"""


@dataclass(frozen=True)
class Edit:
    """A one-line edit: its name, the term that it makes wrong, the outputs that it changes."""

    name: str
    term: str
    outputs: tuple[str, ...]

    @property
    def is_logic(self) -> bool:
        """Return whether it changes the formula by more than epsilon or a rounding."""
        return self.term not in ("precision", "epsilon")


def _edits(term: str, outputs: tuple[str, ...], *names: str) -> tuple[Edit, ...]:
    return tuple(Edit(name, term, outputs) for name in names)


_Y = ("y",)
_ALL = ("dx", "dgamma")
_VARIANCE = (
    "variance-over-n-minus-1", "variance-without-last-tile", "variance-without-last-3",
)  # fmt: skip
_MEAN = (
    "mean-not-subtracted", "mean-subtracted-twice", "mean-without-last-tile",
    "mean-without-last-3", "mean-over-n-minus-1",
)  # fmt: skip
_RSTD = ("rstd-off-0.4%", "rstd-off-0.1%", "rstd-of-next-row")
_EPSILON = ("epsilon-missing", "epsilon-wrong")
_PLACES = ("a-row-a-step", "a-tile-a-step", "few-a-step")
_GAMMA = ("gamma-missing", "gamma-tile-shifted")
_ROWS_FW = (
    *_edits("variance", _Y, *_VARIANCE),
    *_edits("precision", _Y, "variance-in-bf16"),
    *_edits("rstd", _Y, *_RSTD, "rstd-missing"),
    *_edits("epsilon", _Y, *_EPSILON),
    *_edits("gamma", _Y, *_GAMMA),
    *_edits("scale", _Y, "y-off-0.1%"),
    *_edits("row", _Y, "stale-row"),
    *_edits("place", _Y, *_PLACES),
)
_LAYERNORM_FW = (
    *_ROWS_FW,
    *_edits("mean", _Y, *_MEAN),
    *_edits("precision", _Y, "mean-in-bf16"),
    *_edits("variance", _Y, "variance-about-0"),
    *_edits("beta", _Y, "beta-missing", "beta-tile-sign"),
)
_ROWS_BW = (
    *_edits("variance", _ALL, *_VARIANCE),
    *_edits("precision", _ALL, "variance-in-bf16"),
    *_edits("rstd", _ALL, *_RSTD),
    *_edits("epsilon", _ALL, *_EPSILON),
    *_edits("gamma", ("dx",), *_GAMMA),
    *_edits("scale", ("dx",), "dx-off-0.1%"),
    *_edits("scale", ("dgamma",), "dgamma-off-0.1%"),
    *_edits("row", ("dx",), "stale-row"),
    *_edits("place", ("dx",), *_PLACES),
    *_edits("rstd", ("dx",), "outer-rstd-missing"),
    *_edits("rstd", ("dgamma",), "dgamma-without-rstd"),
    *_edits("row", ("dgamma",), "dgamma-without-last-row"),
    *_edits(
        "s2", ("dx",), "s2-missing", "s2-without-last-tile", "s2-without-last-3",
        "s2-over-n-minus-1", "s2-of-next-row",
    ),
)  # fmt: skip
EDITS: Final[Mapping[str, tuple[Edit, ...]]] = {
    "layernorm_fw": _LAYERNORM_FW,
    "rmsnorm_fw": (*_ROWS_FW, *_edits("mean", _Y, "mean-subtracted")),
    "groupnorm_fw": (
        *_LAYERNORM_FW,
        *_edits("groups", _Y, "groups-shifted-by-a-channel", "half-groups"),
    ),
    "layernorm_bw": (
        *_ROWS_BW,
        *_edits("mean", _ALL, *_MEAN),
        *_edits("precision", _ALL, "mean-in-bf16"),
        *_edits("variance", _ALL, "variance-about-0"),
        *_edits("row", ("dbeta",), "dbeta-without-last-row"),
        *_edits(
            "s1", ("dx",), "s1-missing", "s1-twice", "s1-without-last-tile",
            "s1-without-last-3", "s1-over-n-minus-1",
        ),
    ),
    "rmsnorm_bw": _ROWS_BW,
}  # fmt: skip
"""Kind -> its edits."""

CASES_PER_MUTANT: Final[Mapping[str, int]] = {"fp32": 3, "bf16": 1, "fp16": 1}
"""Format -> the cases that a mutant runs on; which ones goes round. It takes a judge ten times as
long to say what is wrong with a 16-bit output."""
EXACT_CASES_PER_MUTANT: Final = 1
"""The same for the regime `exact`, which only logic edits run on."""


@dataclass(frozen=True)
class Mutant:
    """A source with an edit."""

    source: Source
    edit: Edit

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.source.name}: {self.edit.name}"


def mutants(kind: str, number_format: str) -> Iterator[tuple[Mutant, Case]]:
    """Yield every mutant of a kind with its cases in a format."""
    ordinary: list[Case] = []
    exact_cases: list[Case] = []
    for case in cases(kind, number_format):
        (exact_cases if case.regime == "exact" else ordinary).append(case)
    chosen = [source for source in SOURCES if source.kind == kind and source.suits(number_format)]
    for place, source in enumerate(chosen):
        for number, edit in enumerate(EDITS[kind]):
            for case in _some(ordinary, 7 * number + 3 * place, CASES_PER_MUTANT[number_format]):
                yield Mutant(source, edit), case
            if edit.is_logic:
                for case in _some(exact_cases, number + place, EXACT_CASES_PER_MUTANT):
                    yield Mutant(source, edit), case


def _some(rows: Sequence[Case], first: int, count: int) -> list[Case]:
    """Return `count` rows at equal distances, from the first one on."""
    step = max(len(rows) // count, 1)
    return [rows[(first + step * number) % len(rows)] for number in range(min(count, len(rows)))]


def mutant_named(name: str, kind: str) -> Mutant:
    """Return the mutant of a kind with this name. Raises ValueError for an unknown one."""
    source_name, _, edit_name = name.partition(": ")
    for source in SOURCES:
        for edit in EDITS[kind]:
            if (source.name, source.kind, edit.name) == (source_name, kind, edit_name):
                return Mutant(source, edit)
    raise ValueError(f"there is no mutant {name!r} of {kind}")


def run(source: Source, case: Case, seed: int, edit: str | None = None) -> Tensors:
    """Return the outputs of a source, edited or not, in the case's format."""
    rounding = partial(narrowed, number_format=case.format)
    step = Step(
        edit,
        SUMS[source.sums],
        frozenset(source.stored),
        rounding,
        partial(narrowed, number_format="bf16"),
        source.updates,
    )
    with np.errstate(all="ignore"):
        outputs = source.function(inputs(case, seed), case.epsilon, case.groups, step)
    return {name: np.asarray(values, np.float32) for name, values in outputs.items()}


def exact(source: Source, case: Case, seed: int, edit: str | None = None) -> dict[str, Doubles]:
    """Return the outputs of a source in float64, without any rounding to the format."""
    step = Step(edit, SUMS["pairwise"], frozenset(), None, None)
    doubles = {name: values.astype(np.float64) for name, values in inputs(case, seed).items()}
    with np.errstate(all="ignore"):
        return dict(source.function(doubles, case.epsilon, case.groups, step))


@lru_cache(maxsize=8)
def reference(case: Case, seed: int) -> Mapping[str, Doubles]:
    """Return the function in float64. Don't change the arrays: they are cached."""
    functions = {
        "layernorm_fw": sources.layernorm_fw,
        "layernorm_bw": sources.layernorm_bw,
        "rmsnorm_fw": sources.rmsnorm_fw,
        "rmsnorm_bw": sources.rmsnorm_bw,
        "groupnorm_fw": sources.groupnorm_fw,
    }
    return exact(Source("float64", case.kind, functions[case.kind]), case, seed)


def is_no_op(mutant: Mutant, case: Case, seed: int) -> bool:
    """Return whether the edit changes nothing on these inputs in exact arithmetic."""
    right = _exact_twin(mutant.source, case, seed)
    wrong = exact(mutant.source, case, seed, mutant.edit.name)
    return all(
        np.allclose(wrong[name], right[name], rtol=1e-11, atol=1e-11 * np.abs(right[name]).max())
        for name in KINDS[case.kind].outputs
    )


def sizes(mutant: Mutant, case: Case, seed: int) -> dict[str, float]:
    """Return the largest change of a row that the edit makes to each output in exact arithmetic.

    It is relative to the row's root of its sum of squares. Sums down the columns are one row.
    """
    right = _exact_twin(mutant.source, case, seed)
    wrong = exact(mutant.source, case, seed, mutant.edit.name)
    changes = {}
    for name in KINDS[case.kind].outputs:
        rows = right[name].reshape(case.matrix if right[name].size > case.channels else (1, -1))
        norm = np.sqrt(np.square(rows).sum(axis=1))
        change = np.sqrt(np.square(wrong[name].reshape(rows.shape) - rows).sum(axis=1))
        changes[name] = float(np.divide(change, norm, where=norm > 0, out=change).max())
    return changes


@lru_cache(maxsize=8)
def _exact_twin(source: Source, case: Case, seed: int) -> Mapping[str, Doubles]:
    return exact(source, case, seed)

"""Kernels by a stranger, right and wrong: a small part of the corpus, on several seeds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.corpus.judging import ask
from benchmarks.corpus.run import Run
from benchmarks.corpus.sources.strangers import Strangers
from benchmarks.strangers.cases import CASES
from benchmarks.strangers.plugin import Stranger
from benchmarks.strangers.rights import RIGHTS
from benchmarks.strangers.wrongs import WRONGS
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.verdicts import Explanation, worst_explanation

FORWARD, BACKWARD = "layernorm_fw-64x96-uniform-bf16", "layernorm_bw-64x96-uniform-bf16"

RIGHT = (
    ("sum-shuffled", FORWARD),
    ("moments-welford", FORWARD),
    ("stored-all-zero", FORWARD),  # every buffer truncates; x - mean is stored where x^ takes it
    ("stored-all-even", FORWARD),
    ("stored-all-zero", BACKWARD),
    ("form-spread", BACKWARD),
)
WRONG = (
    ("squares-last-tile-dropped", FORWARD),
    ("y-race-drops-a-tile", FORWARD),
    ("beta-shifted", FORWARD),
    ("s2-missing", BACKWARD),
    ("dx-stale-tile", BACKWARD),
    ("dgamma-last-row-dropped", BACKWARD),
)


def explained(kernel: str, case: str, edit: str, seeds: int) -> tuple[Explanation, set[str]]:
    """Return the worst answer of the seeds, and the sizes of the fault."""
    answers, sizes = [], set()
    for seed in range(seeds):
        run, source = Run("strangers", kernel, case, seed, edit), Strangers()
        outputs, label = source.make(run)
        answers.append(ask(source.question(run), outputs).explanation)
        sizes.add(label.size)
    return worst_explanation(answers), sizes


@pytest.mark.parametrize(("name", "case"), RIGHT)
def test_a_right_stranger_is_not_flagged(name: str, case: str) -> None:
    assert explained(name, case, "", seeds=2) == ("explained", {"right"})


@pytest.mark.parametrize(("name", "case"), WRONG)
def test_a_wrong_stranger_whose_fault_shows_is_flagged(name: str, case: str) -> None:
    explanation, sizes = explained("stored", case, name, seeds=2)
    assert "clear" in sizes
    assert explanation in ("suspect", "unexplained")


def test_a_fault_that_changes_nothing_cannot_show() -> None:
    # 96 columns have no padding
    assert explained("plain", FORWARD, "squares-tail-repeated", seeds=1) == (
        "explained",
        {"hidden"},
    )


def test_the_plug_in_gives_what_the_contract_asks_for() -> None:
    test = CASES[BACKWARD].test
    given = quantise(test, generate(test, 0))
    outputs = Stranger("right:sum-pairwise").run(test.canonical(), dict(given))
    assert {name: value.shape for name, value in outputs.items()} == {
        "dx": (64, 96),
        "dgamma": (96,),
        "dbeta": (96,),
    }
    assert all(value.dtype == np.float32 for value in outputs.values())
    with pytest.raises(ValueError, match="unknown build"):
        Stranger("right:nobody")


def test_there_are_enough_of_them() -> None:
    assert sum(not right.exotic for right in RIGHTS.values()) >= 40
    assert len(WRONGS) >= 80

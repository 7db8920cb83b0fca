"""`gonogo.judge` and `gonogo.pool`: judge a kernel's outputs from Python.

At import it loads only the standard library; `judge` needs NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gonogo.public import arguments, handover, tensors

KERNEL_FORMATS = ("fp32", "bf16", "fp16", "bfp8_b")
WORST_FIRST = (
    "fail",
    "pass_by_tolerance",
    "fail_by_tolerance",
    "suspect",
    "inconclusive",
    "not_judged",
    "pass",
)
"""The verdicts that judge() returns (docs/verdicts.md)."""
EXPLANATIONS = ("unexplained", "suspect", "inconclusive", "not_judged", "explained")


@dataclass(frozen=True, repr=False)
class Judgment:
    """The answer to two questions: are the outputs within the tolerance, and is the error rounding?

    Attributes:
        verdict: "pass", "pass_by_tolerance" (green and wrong), "fail", "fail_by_tolerance" (red
            and right), "suspect", "inconclusive" or "not_judged".
        explanation: "explained", "suspect", "unexplained", "inconclusive" or "not_judged".
        arithmetic: the arithmetic model that explains the outputs, such as "fp32-inside"; the
            models of several outputs are joined by "; ". "unknown" where none explains one.
        detection_limits: output -> the faults that could not have shown in it.
        advice: output -> the tolerance to take, where today's turns right kernels red.
        words: a few lines for people; the diagnosis where rounding doesn't explain the error.
        outputs: output -> its verdict, explanation and statistics (docs/verdicts.md).
        seeds: the number of judgments that it sums up.
    """

    verdict: str
    explanation: str
    arithmetic: str
    detection_limits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    advice: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: int = 1

    def __repr__(self) -> str:
        """Return its words: all statistics would fill a screen (`to_json` has them)."""
        outputs = ", ".join(self.outputs)
        return f"<Judgment {self.verdict}, {self.explanation}, of {outputs}: {self.arithmetic}>"

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types: mappings and tuples of any kind become dicts and lists."""
        return {
            "verdict": self.verdict,
            "explanation": self.explanation,
            "arithmetic": self.arithmetic,
            "detection_limits": {name: list(of) for name, of in self.detection_limits.items()},
            "advice": dict(self.advice),
            "words": self.words,
            "outputs": {name: dict(numbers) for name, numbers in self.outputs.items()},
            "seeds": self.seeds,
        }


def judge(
    *,
    kernel: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    tolerance: Mapping[str, Any] | None = None,
    epsilon: float | None = None,
    numerics: Mapping[str, Any] | None = None,
    arithmetic: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Judgment:
    """Judge the outputs of one run of a kernel.

    Args:
        kernel: "layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw", or a
            kernel of an installed package, which is imported then (docs/own_kernel.md).
        inputs: the kernel's inputs by name, with the values that it got: x and dy of any shape
            whose last dimension is N (group norm: [samples, channels, ...]), gamma and beta [N]
            ([channels]); mean and rstd, one value per row, where layernorm_bw gets them. NumPy
            arrays, torch tensors (bf16 too), JAX arrays, and anything with `__array__` or DLPack.
        outputs: any of the kernel's outputs by name, in the same shapes.
        tolerance: {"rtol": ..., "atol": ...} and the other comparators of docs/spec.md; None: every
            output is within.
        epsilon: what the kernel adds to the variance (default: 1e-6).
        numerics: formats that the dtypes don't say, such as {"input": "bf16", "output": "fp32"}.
        arithmetic: the kernel's arithmetic model, such as "tt-train" for a Wormhole; by default it
            is found by replay.
        parameters: the kernel's own parameters, such as {"num_groups": 8}.

    Raises:
        FieldError: a field, shape or value is impossible; the message names the field, the value
            and the limit.
        JobError: an input is missing, or no output is given.
        KernelOutputError: an output has a wrong shape or type.
        TypeError: an argument has a wrong type, a value isn't a tensor of real numbers, or its
            dtype has no format here (float8).
    """
    from gonogo.judging.comparison import judge_here, pass_words

    for name, value in (("inputs", inputs), ("outputs", outputs)):
        if value is None:
            raise TypeError(f"{name}: is required (allowed: such as {arguments.EXAMPLES[name]})")
    arguments.check_mappings(inputs=inputs, outputs=outputs)
    arguments.check_mappings(tolerance=tolerance, numerics=numerics, parameters=parameters)
    read = {name: tensors.read_for_kernel(value, name) for name, value in inputs.items()}
    read_outputs = {name: tensors.read_for_kernel(value, name) for name, value in outputs.items()}
    arrays = {
        name: tensor.values.astype("float32", copy=False)
        for name, tensor in {**read, **read_outputs}.items()
    }
    fields: dict[str, Any] = {"tolerance": dict(tolerance or {})}
    if epsilon is not None:
        fields["epsilon"] = epsilon
    if parameters is not None:
        fields["parameters"] = dict(parameters)
    fields["numerics"] = _formats(read, read_outputs) | dict(numerics or {})
    judgment, words, _, record = judge_here(
        handover.test_fields(kernel, arrays, fields),
        arrays,
        {},
        arithmetic or tensors.default_arithmetic(outputs.values()),
    )
    return _from_record(
        record
        | {
            "arithmetic": judgment.arithmetic,
            "words": words or pass_words(judgment, record["spec"]),
        },
        {name: output.to_json() for name, output in judgment.outputs.items()},
    )


def _from_record(record: Mapping[str, Any], outputs: Mapping[str, Mapping[str, Any]]) -> Judgment:
    """Return the judgment of a record with the entries of its outputs."""
    return Judgment(
        verdict=record["verdict"],
        explanation=record["explanation"],
        arithmetic=record["arithmetic"],
        detection_limits={
            name: tuple(numbers["detection_limits"])
            for name, numbers in outputs.items()
            if "detection_limits" in numbers
        },
        advice={
            name: numbers["advice"] for name, numbers in outputs.items() if "advice" in numbers
        },
        words=record["words"],
        outputs=outputs,
    )


def pool(judgments: Iterable[Judgment]) -> Judgment:
    """Return the judgment of a test from those of its seeds.

    The verdict and the explanation are the worst. Two suspect seeds of one output are no chance, so
    they make it unexplained; so do too many missed rows (gonogo.spec.missed_rows) of one of them.

    A fault is a detection limit, and a term is unseen, where no seed could have shown it: a red
    seed that is inconclusive for terms that other seeds could have seen is a false alarm. The other
    statistics are those of each output's worst seed. Raises ValueError for no judgments, and
    TypeError for what isn't one.
    """
    from gonogo.flakiness.suspects import unexplained_together
    from gonogo.spec import missed_rows, unseen_terms
    from gonogo.spec.arithmetic_words import shared_limits

    members: list[Any] = [*judgments] if hasattr(judgments, "__iter__") else [judgments]
    for place, judgment in enumerate(members):
        if not isinstance(judgment, Judgment):
            name = f"judgments[{place}]"
            raise arguments.refused(
                name, judgment, "must be a judgment", "a list of what gonogo.judge returned"
            )
    given: list[Judgment] = members
    if not given:
        raise ValueError("judgments is empty: pool needs at least one")
    entries = {
        name: [seed.outputs[name] for seed in given if name in seed.outputs]
        for name in dict.fromkeys(name for seed in given for name in seed.outputs)
    }
    unseen = {name: unseen_terms.shared(rows) for name, rows in entries.items()}
    together = unexplained_together(enumerate(seed.outputs for seed in given))
    seeds = [_settled(_with_seen(seed, unseen), together) for seed in given]
    outputs = {name: _pooled_entry(name, seeds, unseen[name]) for name in entries}
    explanation = min((seed.explanation for seed in seeds), key=EXPLANATIONS.index)
    verdict = min((seed.verdict for seed in seeds), key=WORST_FIRST.index)
    worst_words = next((seed.words for seed in seeds if seed.verdict == verdict), "")
    counts = {name: sum(seed.verdict == name for seed in seeds) for name in WORST_FIRST}
    summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    missed = {name: missed_rows.pooled(rows) for name, rows in entries.items()}
    lines = [
        f"{name}: {rows.words}"
        for name, rows in missed.items()
        if rows is not None and rows.missed and rows.seeds > 1
    ]
    return Judgment(
        verdict,
        explanation,
        "; ".join(dict.fromkeys(seed.arithmetic for seed in seeds)),
        {
            name: shared_limits(seed.detection_limits.get(name, ()) for seed in seeds)
            for name in outputs
            if any(name in seed.detection_limits for seed in seeds)
        },
        {name: words for seed in seeds for name, words in seed.advice.items()},
        "\n".join(filter(None, (f"{len(seeds)} seeds: {summary}", *lines, worst_words))),
        outputs,
        sum(seed.seeds for seed in seeds),
    )


def _settled(seed: Judgment, together: Mapping[str, str]) -> Judgment:
    """Return the judgment of a suspect seed that all seeds together leave unexplained.

    together: output -> the sentence of gonogo.flakiness.suspects.unexplained_together.
    """
    from gonogo.flakiness.suspects import settled_verdict
    from gonogo.judging.comparison import settled_words

    suspect = {
        name: numbers
        for name, numbers in seed.outputs.items()
        if name in together and numbers["explanation"] == "suspect"
    }
    if not suspect:
        return seed
    verdict = settled_verdict(seed.verdict, seed.outputs, together)
    settled = {
        name: {
            **numbers,
            "verdict": settled_verdict(numbers["verdict"], {name: numbers}, together).value,
            "explanation": "unexplained",
        }
        for name, numbers in suspect.items()
    }
    return replace(
        seed,
        verdict=verdict.value,
        explanation="unexplained",
        words=settled_words(seed.words, verdict, together),
        outputs={**seed.outputs, **settled},
    )


def _with_seen(seed: Judgment, unseen: Mapping[str, Sequence[str]]) -> Judgment:
    """Return the judgment of a seed that is red, and inconclusive for terms that others have seen.

    It is a false alarm then; other judgments stay as they are. unseen: output -> the terms that no
    seed could have seen.
    """
    from gonogo.spec import unseen_terms

    causes = {
        name: numbers
        for name, numbers in seed.outputs.items()
        if numbers["explanation"] == "inconclusive"
    }
    if seed.explanation != "inconclusive" or not all(
        unseen_terms.is_cause(numbers) and not unseen[name] for name, numbers in causes.items()
    ):
        return seed
    right = {"verdict": "fail_by_tolerance", "explanation": "explained"}
    return replace(
        seed,
        verdict=right["verdict"],
        explanation=right["explanation"],
        words="\n".join(
            f"{name}: other seeds could have seen {', '.join(numbers[unseen_terms.NAME])}, "
            "so the kernel is right"
            for name, numbers in causes.items()
        ),
        outputs={**seed.outputs, **{name: {**causes[name], **right} for name in causes}},
    )


def _pooled_entry(name: str, seeds: Sequence[Judgment], unseen: Sequence[str]) -> Mapping[str, Any]:
    """Return the entry of an output's worst seed.

    What no seed could have seen, the other programs, and the missed rows, are those of all seeds.
    """
    from gonogo.spec import missed_rows, unseen_terms
    from gonogo.spec.arithmetic_words import OTHERS, shared_limits, shared_others

    rows = [seed.outputs[name] for seed in seeds if name in seed.outputs]
    worst = min(rows, key=lambda numbers: WORST_FIRST.index(numbers["verdict"]))
    if OTHERS in worst:
        worst = {**worst, OTHERS: list(shared_others(rows))}
    if (missed := missed_rows.pooled(rows)) is not None:
        worst = {**worst, missed_rows.NAME: asdict(missed)}
    if unseen_terms.NAME not in worst:
        return worst
    limits = shared_limits(row["detection_limits"] for row in rows if "detection_limits" in row)
    return {**worst, unseen_terms.NAME: list(unseen), "detection_limits": list(limits)}


def _formats(
    inputs: Mapping[str, tensors.Tensor], outputs: Mapping[str, tensors.Tensor]
) -> dict[str, Any]:
    """Return the formats of the tensors as fields of `numerics`."""
    known = {
        name: "fp32" if tensor.format == "fp64" else tensor.format
        for name, tensor in {**inputs, **outputs}.items()
    }
    formats = {name: known[name] for name in inputs if known[name] in KERNEL_FORMATS}
    of_outputs = [known[name] for name in outputs if known[name] in KERNEL_FORMATS]
    # statistics are often wider than the output that they belong to
    matrices = [known[name] for name in outputs if name in ("y", "dx") and known[name]]
    numerics: dict[str, Any] = {"input": formats} if formats else {}
    if matrices or of_outputs:
        numerics["output"] = (matrices or of_outputs)[0]
    return numerics

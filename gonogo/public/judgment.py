"""`gonogo.judge` and `gonogo.pool`: judge a kernel's outputs from Python.

At import it loads only the standard library; `judge` needs NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gonogo.public import arguments, handover, tensors

if TYPE_CHECKING:
    from gonogo.arithmetic import Program

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
Limits = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, repr=False)
class Judgment:
    """The answer to two questions: are the outputs within the tolerance, and is the error rounding?

    Attributes:
        verdict: "pass", "pass_by_tolerance" (green and wrong), "fail", "fail_by_tolerance" (red
            and right), "suspect", "inconclusive" or "not_judged".
        explanation: "explained", "suspect", "unexplained", "inconclusive" or "not_judged".
        arithmetic: the arithmetic that explains the outputs, else the closest one; those of several
            outputs are joined by "; ".
        message: a few lines for people; what is wrong where rounding doesn't explain the error.
        outputs: output -> its verdict, explanation and statistics (docs/verdicts.md).
        seeds: the number of judgments that it sums up.
    """

    verdict: str
    explanation: str
    arithmetic: str
    message: str = ""
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seeds: int = 1
    _limits: Callable[[], Limits] = field(default=dict, compare=False)

    @cached_property
    def detection_limits(self) -> Limits:
        """Output -> what it could hide, though rounding explains it. It is computed when read."""
        return self._limits()

    @property
    def advice(self) -> dict[str, str]:
        """Output -> the tolerance to take, where today's turns right kernels red."""
        return {
            name: entry["advice"] for name, entry in self.outputs.items() if entry.get("advice")
        }

    def __repr__(self) -> str:
        """Return it in a line: all statistics would fill a screen (`to_json` has them)."""
        outputs = ", ".join(self.outputs)
        return f"<Judgment {self.verdict}, {self.explanation}, of {outputs}: {self.arithmetic}>"

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types."""
        names = ("verdict", "explanation", "arithmetic", "advice", "message", "seeds")
        return {
            **{name: getattr(self, name) for name in names},
            "detection_limits": {name: list(of) for name, of in self.detection_limits.items()},
            "outputs": {name: dict(numbers) for name, numbers in self.outputs.items()},
        }


def judge(
    *,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    kernel: str | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: Mapping[str, Any] | None = None,
    ways: Sequence[Callable[..., Any]] = (),
    program: str | Program | None = None,
    parameters: Mapping[str, Any] | None = None,
    numerics: Mapping[str, Any] | None = None,
    epsilon: float | None = None,
) -> Judgment:
    """Judge the outputs of one run of a kernel: one that GoNoGo knows, or any that you can write.

    Args:
        inputs: the kernel's inputs by name, with the values that it got. NumPy arrays, torch
            tensors (bf16 too), JAX arrays, and anything with `__array__` or DLPack. Those of a
            known kernel have any shape whose last dimension is N (group norm: [samples, channels,
            ...]), gamma and beta [N] ([channels]); mean and rstd one value per row, where
            layernorm_bw gets them.
        outputs: any of the kernel's outputs by name, in the same shapes.
        kernel: "layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw", or a
            kernel of an installed package, which is imported then (docs/own_kernel.md).
        reference: in its place: a plain NumPy function of the inputs and parameters by name that
            returns a dict of outputs. It is traced (docs/python.md).
        tolerance: {"rtol": ..., "atol": ...} and the other comparators of docs/spec.md; None: every
            output is within.
        ways: with a reference: other functions of the same arguments that are equal in exact
            arithmetic, which the kernel may compute in its place.
        program: the arithmetic that the kernel declares, and which alone may explain its outputs: a
            name such as "tt-train", or of a reference a gonogo.arithmetic.Program. By default it
            is found.
        parameters: the kernel's own parameters, such as {"num_groups": 8}; those of the reference.
        numerics: formats that the dtypes don't say, such as {"input": "bf16", "output": "fp32"}.
        epsilon: what a known kernel adds to the variance (default: 1e-6).

    Raises:
        FieldError: a field, shape or value is impossible; the message names the field, the value
            and the limit.
        JobError: an input is missing, or no output is given. A TraceError, which is one, says what
            of the reference can't be traced, in which line, and what to write instead.
        KernelOutputError: an output has a wrong shape or type.
        TypeError: an argument has a wrong type, a value isn't a tensor of real numbers, or its
            dtype has no format here (float8).
    """
    from gonogo.judging import comparison

    for name, value in (("inputs", inputs), ("outputs", outputs)):
        if value is None:
            raise TypeError(f"{name}: is required (allowed: such as {arguments.EXAMPLES[name]})")
    arguments.check_mappings(inputs=inputs, outputs=outputs)
    arguments.check_mappings(tolerance=tolerance, numerics=numerics, parameters=parameters)
    if (kernel is None) == (reference is None):
        raise TypeError("kernel, reference: exactly one of the two is required")
    read = {name: tensors.read_for_kernel(value, name) for name, value in inputs.items()}
    read_outputs = {name: tensors.read_for_kernel(value, name) for name, value in outputs.items()}
    if reference is not None:
        from gonogo.judging.functions import case_of_function

        if epsilon is not None:
            remedy = f'parameters={{"epsilon": {epsilon}}}'
            raise TypeError(f"epsilon: is one of the parameters of a reference ({remedy})")
        case: comparison.RunOutputs = case_of_function(
            reference,
            read,
            read_outputs,
            {},
            tolerance=tolerance or {},
            ways=ways,
            program=program,
            parameters=parameters,
            numerics=numerics,
        )
        return _judged(case)
    assert kernel is not None
    if ways or not isinstance(program, str | None):
        raise TypeError("ways, program: functions and programs need a reference, not a kernel")
    arrays = {
        name: tensor.values.astype("float32", copy=False)
        for name, tensor in {**read, **read_outputs}.items()
    }
    given = {"epsilon": epsilon, "parameters": parameters and dict(parameters)}
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    fields["tolerance"] = dict(tolerance or {})
    formats = _formats(handover.with_formats(kernel, read), read_outputs)
    fields["numerics"] = formats | dict(numerics or {})
    test = handover.test_fields(kernel, arrays, fields)
    return _judged(comparison.case_of_test(test, arrays, {}, program))


def _judged(case: Any) -> Judgment:
    from gonogo.judging import comparison

    judgment = case.judge()
    record = comparison.record_of(case, judgment)
    return Judgment(
        verdict=record["verdict"],
        explanation=record["explanation"],
        arithmetic=judgment.arithmetic,
        message=record["words"],
        outputs=record["outputs"],
        _limits=lambda: {
            name: tuple(limits.phrases)
            for name, output in judgment.outputs.items()
            if (limits := case.limits(name, output)) is not None
        },
    )


def pool(judgments: Iterable[Judgment]) -> Judgment:
    """Return the judgment of a test from those of its seeds.

    The verdict and the explanation are the worst. Several suspect seeds of one output are no
    chance, and neither is a common factor that all seeds share: they make it unexplained.

    What no seed could have shown is a detection limit. The other statistics are those of each
    output's worst seed. Raises ValueError for no judgments, and TypeError for what isn't one.
    """
    from gonogo.flakiness.suspects import settled_verdict, unexplained_together
    from gonogo.spec.verdicts import Explanation, worst_explanation

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
    together = unexplained_together(enumerate(seed.outputs for seed in given))
    seeds = [
        _settled(seed, settled_verdict(seed.verdict, seed.outputs, together).value, together)
        for seed in given
    ]
    worst = min(seeds, key=lambda seed: WORST_FIRST.index(seed.verdict))
    counts = {name: sum(seed.verdict == name for seed in seeds) for name in WORST_FIRST}
    summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    outputs = {
        name: min(
            (seed.outputs[name] for seed in seeds if name in seed.outputs),
            key=lambda entry: WORST_FIRST.index(entry["verdict"]),
        )
        for name in dict.fromkeys(name for seed in seeds for name in seed.outputs)
    }
    return Judgment(
        worst.verdict,
        worst_explanation(Explanation(seed.explanation) for seed in seeds).value,
        "; ".join(dict.fromkeys(seed.arithmetic for seed in seeds)),
        f"{len(seeds)} seeds: {summary}\n{worst.message}",
        outputs,
        sum(seed.seeds for seed in seeds),
        lambda: _shared_limits(given),
    )


def _shared_limits(seeds: Sequence[Judgment]) -> Limits:
    from gonogo.spec.arithmetic_words import shared_limits

    limits = [seed.detection_limits for seed in seeds]
    names = dict.fromkeys(name for seed in limits for name in seed)
    return {name: shared_limits(seed[name] for seed in limits if name in seed) for name in names}


def _settled(seed: Judgment, settled: str, together: Mapping[str, str]) -> Judgment:
    """Return the judgment of a seed that all seeds together leave unexplained."""
    from gonogo.flakiness.suspects import is_settled, settled_verdict
    from gonogo.judging.comparison import settled_words
    from gonogo.spec.verdicts import Verdict

    changed = {
        name: {
            **entry,
            "verdict": settled_verdict(entry["verdict"], {name: entry}, together).value,
            "explanation": "unexplained",
        }
        for name, entry in seed.outputs.items()
        if is_settled(entry, name, together)
    }
    if not changed:
        return seed
    return replace(
        seed,
        verdict=settled,
        explanation="unexplained",
        message=settled_words(seed.message, Verdict(settled), together),
        outputs={**seed.outputs, **changed},
    )


def _formats(
    inputs: Mapping[str, tensors.Tensor], outputs: Mapping[str, tensors.Tensor]
) -> dict[str, Any]:
    """Return the formats of the tensors as fields of `numerics`."""
    formats, of_outputs = tensors.kernel_formats(inputs), tensors.kernel_formats(outputs)
    # statistics are often wider than the output that they belong to
    matrices = [form for name, form in of_outputs.items() if name in ("y", "dx")]
    numerics: dict[str, Any] = {"input": formats} if formats else {}
    if of_outputs:
        numerics["output"] = (matrices or list(of_outputs.values()))[0]
    return numerics

"""Drop-in replacements of a test's own assertions: red and green stay as they were, and the numbers
behind them are kept and judged.

Standard library at import. This file runs in other people's interpreters (Python 3.10 or newer),
where the numerics may be missing: then red and green are all that it gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gonogo.public import handover, recorded, tensors
from gonogo.public.recorded import HOLLOW, Comparison

if TYPE_CHECKING:
    from gonogo.judging.closeness import Gate
    from gonogo.public.tensors import Tensor

NO_SPEC = "without the kernel's spec and inputs nobody can say whether rounding explains the error"
KERNEL_FORMATS = ("bf16", "fp16", "fp32", "bfp8_b", "bfp4_b")


def compare(*given: Any, **named: Any) -> Any:
    """Compare a kernel's output with what a test expects of it, or (first argument a kernel's name)
    hand a kernel's arrays over.

    compare(actual, expected, rtol=, atol=, ...) is `against` below; compare("layernorm_bw", x=...,
    dx=..., tolerance=...) is gonogo.public.handover.compare.
    """
    __tracebackhide__ = True  # pytest shows the test's line
    if "actual" in named or (given and not isinstance(given[0], str)):
        return against(*given, **named)
    return handover.compare(*given, **named)


def against(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    pcc: float | None = None,
    frobenius: float | None = None,
    ulp: float | None = None,
    equal_nan: bool = False,
    kernel: str | Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    raw: Mapping[str, Any] | None = None,
    output: str | None = None,
    name: str | None = None,
    arithmetic: str | None = None,
    msg: object = None,
    **fields: Any,
) -> Comparison:
    """Fail as the test's own assertion would: AssertionError unless every declared comparator
    holds. Record the numbers.

    actual, expected: NumPy arrays or what NumPy reads, torch or ttnn tensors, of one shape, or one
    of them a single number; or two mappings (output -> tensor), or two sequences of tensors.
    Comparators as in a test's `tolerance` (docs/spec.md); of only one of rtol and atol the other is
    0; with none at all those of torch.testing.assert_close for the output's dtype hold. All is
    computed in float64.

    With `kernel` (a name, or an object with more fields of a test) and `inputs` (what the kernel
    was given, by name; `raw`: unquantised) it is judged in full: does rounding explain the error?
    `output` says which output `actual` is; default: the kernel's first. `fields` are further fields
    of the test (epsilon, numerics, shape); `arithmetic` is the kernel's arithmetic model. The formats of
    inputs and output are those of the tensors unless `numerics` says them. Without kernel and
    inputs the verdict is `not_judged`, and the numbers say how many times the output format's own
    rounding the tolerance is.

    Raises FieldError or JobError for a spec or inputs that can't be, TypeError for what is no
    tensor, ValueError for a wrong tolerance.
    """
    __tracebackhide__ = True
    from gonogo.judging.closeness import Gate

    if fields and kernel is None:
        raise TypeError(
            f"compare() got an unexpected keyword argument {next(iter(fields))!r} (fields of a test go with kernel=)"
        )
    gate = Gate(rtol, atol, pcc, frobenius, ulp, equal_nan)
    spec = {"kernel": kernel} if isinstance(kernel, str) else dict(kernel or {})
    spec |= fields
    pairs = [
        (label, tensors.read(mine, label), tensors.read(theirs, f"the expected {label}"))
        for label, mine, theirs in _pairs(actual, expected, output or _first(spec) or "actual")
    ]
    found = _Against(name, gate if gate.declared else _default_gate(gate, pairs), spec, arithmetic)
    for label, mine, theirs in pairs:
        found.add(label, mine, theirs)
    said = found.judged(dict(inputs or {}), dict(raw or {}))
    recorded.tell(said)
    if not said.within:
        raise AssertionError(
            "\n".join(filter(None, ("" if msg is None else _text(msg), found.message(said))))
        )
    return said


def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-7,
    atol: float = 0,
    equal_nan: bool = True,
    err_msg: str = "",
    verbose: bool = True,
    **more: Any,
) -> None:
    """numpy.testing.assert_allclose with its defaults; more: what `compare` takes beside."""
    __tracebackhide__ = True
    if more.pop("strict", False):
        _same("dtype", actual, desired)
        _same("shape", actual, desired)
    against(actual, desired, rtol, atol, equal_nan=equal_nan, msg=err_msg or None, **more)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_device: bool = True,
    msg: object = None,
    allow_subclasses: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    **more: Any,
) -> None:
    """torch.testing.assert_close with its defaults; layouts and strides aren't looked at. more:
    what `compare` takes beside.
    """
    __tracebackhide__ = True
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol must both be given, or neither")
    for label, mine, theirs in _pairs(actual, expected, "actual"):
        if hasattr(mine, "detach") and hasattr(theirs, "detach"):
            for what in [
                name
                for name, wanted in (("dtype", check_dtype), ("device", check_device))
                if wanted
            ]:
                _same(what, mine, theirs, label)
    against(actual, expected, rtol, atol, equal_nan=equal_nan, msg=msg, **more)


def assert_with_pcc(
    expected_pytorch_result: Any, actual_pytorch_result: Any, pcc: float = 0.9999, **more: Any
) -> tuple[bool, str]:
    """Ttnn's assert_with_pcc: the expected tensor first. (True, the PCC in words); PCC of a
    constant is undefined and not met.
    """
    __tracebackhide__ = True
    said = against(actual_pytorch_result, expected_pytorch_result, pcc=pcc, **more)
    deficits = [found.get("pcc_deficit") for found in said.outputs.values()]
    return True, f"PCC: {min((1 - each for each in deficits if each is not None), default=1.0)}"


class _Against:
    """One comparison while it is made."""

    def __init__(
        self, name: str | None, gate: Gate, spec: dict[str, Any], arithmetic: str | None
    ) -> None:
        self.name, self.gate, self.spec, self.arithmetic = (
            None if name is None else str(name)[: handover.MAX_NAME],
            gate,
            spec,
            arithmetic,
        )
        self.outputs: dict[str, dict[str, Any]] = {}
        self.actual: dict[str, Tensor] = {}
        self.missed: dict[str, list[str]] = {}
        self.details: dict[str, str] = {}

    def add(self, label: str, mine: Tensor, theirs: Tensor) -> None:
        """The numbers of one output."""
        import numpy as np

        from gonogo.judging import closeness

        self.actual[label] = mine
        a, r = mine.values, theirs.values
        if a.shape != r.shape and a.ndim and r.ndim:
            self.outputs[label] = {"count": int(a.size), "format": mine.format}
            self.missed[label] = [f"shapes differ: {list(a.shape)}, expected {list(r.shape)}"]
            return
        a, r = np.broadcast_arrays(a, r)
        if a.size == 0:
            self.outputs[label], self.missed[label] = {"count": 0, "format": mine.format}, []
            return
        numbers = closeness.numbers(a, r, self.gate, mine.format)
        own = closeness.roundings(r, self.gate, mine.format)
        self.missed[label] = closeness.missed(self.gate, numbers)
        numbers |= {"format": mine.format, "dtype": mine.dtype}
        if own is not None:
            numbers |= {
                "tolerance_roundings": own["times"],
                "tolerance_roundings_least": own["least"],
            }
        self.outputs[label] = numbers
        place = numbers.get("worst_index")
        if place is not None and self.missed[label]:
            at = tuple(place)
            self.details[label] = (
                f"worst at {place}: got {float(a[at])!r}, expected {float(r[at])!r}, {mine.format or mine.dtype}"
            )

    def judged(self, inputs: dict[str, Any], raw: dict[str, Any]) -> Comparison:
        """In full where the kernel and its inputs are known."""
        within = not any(self.missed.values())
        said = Comparison(
            within=within, name=self.name, tolerance=self.gate.to_json(), outputs=self.outputs
        )
        if "kernel" not in self.spec or not (inputs or raw):
            missing = "inputs" if "kernel" in self.spec else "kernel"
            said.words = "; ".join(
                filter(None, (f"{NO_SPEC} ({missing} missing)", *map(self._loose, self.outputs)))
            )
            return said
        if any(
            "max_abs" not in found and not found.get("nonfinite") for found in self.outputs.values()
        ):
            said.words = "nothing could be compared"
            return said
        given = {key: tensors.read(value, key) for key, value in inputs.items()}
        loose = {key: tensors.read(value, f"raw {key}").values for key, value in raw.items()}
        arrays = {
            key: each.values.astype("float32", copy=False)
            for key, each in {**given, **self.actual}.items()
        }
        fields = handover.test_fields(
            self.spec.pop("kernel"), {**loose, **arrays}, {"tolerance": said.tolerance, **self.spec}
        )
        fields["numerics"] = self._formats(given) | dict(fields.get("numerics") or {})
        if recorded.handed_over(recorded.Arrays(fields, arrays, loose, self.name, self.arithmetic)):
            said.words = "handed over to the worker, which judges it"
            return said
        try:
            from gonogo.judging.comparison import judge_against
        except ImportError as problem:
            said.words = f"the numerics that could judge it are not installed ({problem})"
            return said
        try:
            found = judge_against(
                fields,
                arrays,
                loose,
                self.arithmetic,
                self.outputs,
                {key: not words for key, words in self.missed.items()},
            )
        except Exception as problem:
            said.problem = f"{type(problem).__name__}: {problem}"
            recorded.tell(said)
            raise
        return Comparison(name=self.name, arithmetic=self.arithmetic, **found)

    def _formats(self, given: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the formats of the tensors at hand.

        A float32 input beside an output of fewer bits isn't taken for what the kernel was given.
        """
        form = next(iter(self.actual.values())).format
        formats = {}
        for name, each in given.items():
            known = "fp32" if each.format == "fp64" else each.format
            if known in KERNEL_FORMATS and (known != "fp32" or form in ("fp32", "fp64")):
                formats[name] = known
        found: dict[str, Any] = {"input": formats} if formats else {}
        if form in KERNEL_FORMATS:
            found["output"] = form
        return found

    def _loose(self, label: str) -> str:
        """Return how loose the gate is for the format of an output; empty where that can't be said."""
        numbers = self.outputs[label]
        times = numbers.get("tolerance_roundings")
        if times is None:
            return ""
        least = numbers["tolerance_roundings_least"]
        words = f"{label}: the tolerance is {recorded.factor(times)} times {numbers['format']}'s own rounding"
        if least is not None and least < 1:
            words += f", and at some values only {least:.2g} times: a right kernel can fail"
        elif least is not None and least < times / 2:
            words += f" ({recorded.factor(least)} times at the largest values)"
        return words

    def message(self, said: Comparison) -> str:
        """Why it is red: which comparators, where, and what the judgement says of it."""
        head = f"{self.name}: " if self.name else ""
        lines = [
            f"{head}{label}: {'; '.join(words)}" for label, words in self.missed.items() if words
        ]
        lines += [f"  {label}: {words}" for label, words in self.details.items()]
        if said.verdict != "not_judged":
            lines.append(f"  verdict {said.verdict}")
        return "\n".join([*lines, *(f"  {line}" for line in said.words.splitlines())])


def _pairs(actual: Any, expected: Any, label: str) -> list[tuple[str, Any, Any]]:
    """Return (label, actual, expected) of every tensor.

    Raises AssertionError where the two sides hold different ones.
    """
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            raise AssertionError(
                f"the outputs differ: {', '.join(map(str, actual))}; expected {', '.join(map(str, expected))}"
            )
        return [(str(key), actual[key], expected[key]) for key in actual]
    if all(
        isinstance(side, list | tuple) and any(hasattr(each, "shape") for each in side)
        for side in (actual, expected)
    ):
        if len(actual) != len(expected):
            raise AssertionError(f"{len(actual)} tensors, expected {len(expected)}")
        return [
            (f"{label}[{place}]", *pair)
            for place, pair in enumerate(zip(actual, expected, strict=True))
        ]
    return [(label, actual, expected)]


def _first(spec: Mapping[str, Any]) -> str | None:
    """Return the kernel's first output, where the kernel is known here."""
    if "kernel" not in spec:
        return None
    try:
        from gonogo.spec.kernels.registry import KERNELS
    except ImportError:
        return {"layernorm_fw": "y", "layernorm_bw": "dx"}.get(str(spec["kernel"]))
    return KERNELS[spec["kernel"]].outputs[0] if spec["kernel"] in KERNELS else None


def _default_gate(gate: Gate, pairs: list[tuple[str, Tensor, Tensor]]) -> Gate:
    """Torch's defaults: of several dtypes the largest tolerance."""
    from dataclasses import replace

    from gonogo.judging.closeness import DEFAULTS

    found = [(0.0, 0.0)]
    for label, *both in pairs:
        for each in both:
            known = tensors.FORMATS.get(each.dtype.rpartition(".")[2].lower(), each.format)
            if known not in DEFAULTS:
                raise TypeError(
                    f"{label} is {each.dtype}: it has no default tolerance, give rtol and atol, or another comparator"
                )
            found.append(DEFAULTS[known])
    return replace(gate, rtol=max(rtol for rtol, _ in found), atol=max(atol for _, atol in found))


def _same(what: str, actual: Any, expected: Any, label: str = "actual") -> None:
    __tracebackhide__ = True
    mine, theirs = getattr(actual, what, None), getattr(expected, what, None)
    if mine != theirs:
        raise AssertionError(f"{label}: {what} {mine}, expected {theirs}")


def _text(msg: object) -> str:
    """Torch allows a function of the message."""
    return str(msg("")) if callable(msg) else str(msg)


__all__ = [
    "HOLLOW",
    "Comparison",
    "against",
    "assert_allclose",
    "assert_close",
    "assert_with_pcc",
    "compare",
]

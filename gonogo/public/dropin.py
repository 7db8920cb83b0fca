"""Drop-in replacements for a test's own assertions, which also record and judge the numbers.

A test passes and fails as before. This module runs in other people's interpreters (Python 3.10 or
newer), where the numerics may be missing; then a comparison only passes or fails. At import it
loads only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gonogo.public import arguments, handover, recorded, tensors
from gonogo.public.recorded import HOLLOW, Comparison

if TYPE_CHECKING:
    from gonogo.closeness import Gate
    from gonogo.public.tensors import Tensor

__tracebackhide__ = True
"""pytest shows the test's line, and none of ours (`--full-trace` shows all)."""

NO_SPEC = "without the kernel's spec and inputs nobody can say whether rounding explains the error"
FORMS = "compare(actual, expected, ...) and compare('layernorm_fw', x=x, ..., y=y)"


def compare(*given: Any, **named: Any) -> Any:
    """Compare a kernel's output with the expected one, or have a kernel's arrays judged.

    There are two forms. The first replaces an assertion of your test:

        gonogo.compare(actual, expected, rtol=1e-2, atol=5e-2)

    It raises AssertionError unless every declared comparator holds, as your assertion does, and it
    records the numbers. If you name the kernel and its inputs, the error is also judged: does
    rounding explain it?

        inputs = {"x": x, "gamma": gamma, "beta": beta}
        gonogo.compare(y, expected, rtol=1e-2, kernel="layernorm_fw", inputs=inputs)

    The second form needs no expected output. Its first argument is the name of a kernel, and its
    other arguments are the kernel's inputs and outputs, and fields of the test:

        gonogo.compare("layernorm_bw", x=x, gamma=gamma, dy=dy, dx=dx, tolerance={"rtol": 1e-3})

    See `help(gonogo.public.dropin.against)` for all arguments of the first form, and
    `help(gonogo.public.handover.compare)` for those of the second. docs/pytest.md has complete
    examples.
    """
    if "actual" in named or (given and not isinstance(given[0], str)):
        if len(given) + ("actual" in named) < 2 and "expected" not in named:
            raise TypeError(f"expected: is required beside actual (allowed: {FORMS})")
        return against(*given, **named)
    if len(given) > 1:
        raise arguments.refused("actual", given[0], "must be a tensor", FORMS)
    if not given and "kernel" not in named:
        raise TypeError(f"actual: is required, or the name of a kernel (allowed: {FORMS})")
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
    reference: Callable[..., Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    raw: Mapping[str, Any] | None = None,
    output: str | None = None,
    name: str | None = None,
    arithmetic: str | None = None,
    msg: object = None,
    **fields: Any,
) -> Comparison:
    """Raise AssertionError unless every declared comparator holds; record and judge the numbers.

    Everything is computed in float64. If no comparator is given at all, the defaults of
    torch.testing.assert_close for the output's dtype apply. Where the error can't be judged, such
    as for an unknown kernel or a missing input, the test passes and fails as without `kernel`; the
    reason is in `problem`. Returns the comparison, with its verdict and its numbers.

    Args:
        actual: a tensor (a NumPy array or anything that NumPy can read, a torch or ttnn tensor), or
            a mapping from output to tensor, or a sequence of tensors.
        expected: the same with the expected values. Of two tensors one may be a single number;
            otherwise their shapes must be equal.
        rtol: |actual - expected| <= atol + rtol |expected| must hold; 0 if only atol is given.
        atol: see rtol; 0 if only rtol is given.
        pcc: the smallest allowed Pearson correlation coefficient.
        frobenius: the largest allowed relative error in the Frobenius norm.
        ulp: the largest allowed distance in units in the last place of the output's format.
        equal_nan: whether NaN equals NaN.
        kernel: the kernel's name, or an object with more fields of a test (docs/spec.md).
        reference: in its place: a plain NumPy function, with its `ways` and `parameters`, as
            `gonogo.judge` takes it.
        inputs: the kernel's inputs by name, with the values that it got. Without them the verdict
            is `not_judged`.
        raw: unquantized inputs by name. One that is only here was rounded to its format.
        output: the name of the output that `actual` is; default: the kernel's first.
        name: a name that distinguishes several comparisons of one test.
        arithmetic: the one that the kernel declares (docs/verdicts.md); by default it is found.
        msg: a message to put first in the AssertionError.
        fields: further fields of the test, such as epsilon, numerics or shape. Formats are taken
            from the tensors unless `numerics` names them.

    Raises:
        AssertionError: a comparator doesn't hold.
        TypeError: an argument has a wrong type, or the dtype has no default tolerance.
        ValueError: the tolerance is invalid.
    """
    from gonogo.closeness import Gate

    _check(kernel, reference, fields)
    arguments.check_numbers(rtol=rtol, atol=atol, pcc=pcc, frobenius=frobenius, ulp=ulp)
    arguments.check_switches(equal_nan=equal_nan)
    arguments.check_mappings(inputs=inputs, raw=raw)
    arguments.check_texts(output=output, arithmetic=arithmetic)
    gate = Gate(rtol, atol, pcc, frobenius, ulp, equal_nan)
    spec = {"kernel": kernel} if isinstance(kernel, str) else dict(kernel or {})
    spec |= fields if reference is None else {"reference": reference, **fields}
    results = tensor_pairs(actual, expected, output or first_output(spec) or "actual")
    pairs = [
        (label, tensors.read(result, label), tensors.read(right, f"the expected {label}"))
        for label, result, right in results
    ]
    gate = gate if gate.declared else default_gate(gate, pairs)
    pending = PendingComparison(name, gate, spec, arithmetic)
    for label, result, right in pairs:
        pending.add(label, result, right)
    comparison = pending.judged(dict(inputs or {}), dict(raw or {}))
    recorded.publish(comparison)
    if not comparison.within:
        # torch also allows a function that makes the message
        first = "" if msg is None else str(msg("") if callable(msg) else msg)
        raise AssertionError("\n".join(filter(None, (first, pending.message(comparison)))))
    return comparison


def _check(kernel: object, reference: object, fields: Mapping[str, Any]) -> None:
    """Raise TypeError for a kernel or a reference that is none, and for fields of another."""
    known = () if reference is None else ("ways", "parameters", "numerics")
    unknown = [name for name in fields if name not in known]
    if unknown and kernel is None:
        fitting = f"a reference has {', '.join(known)}"
        fitting = fitting if known else "fields of a test need kernel="
        raise TypeError(f"compare() got an unexpected keyword argument {unknown[0]!r} ({fitting})")
    if reference is not None and (kernel is not None or not callable(reference)):
        allowed = "a NumPy function, and no kernel beside it"
        raise arguments.refused("reference", reference, "must be a function", allowed)
    if kernel is not None and not isinstance(kernel, str | Mapping):
        allowed = "the name of a kernel, or an object with fields of a test (manual: spec)"
        raise arguments.refused("kernel", kernel, "must name a kernel", allowed)


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
    """Assert as numpy.testing.assert_allclose does, and record and judge the numbers.

    It has the arguments and defaults of NumPy's function. `more` are further arguments of
    `against`, such as kernel and inputs. Raises AssertionError if the arrays aren't close.
    """
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
    """Assert as torch.testing.assert_close does, and record and judge the numbers.

    It has the arguments and defaults of torch's function, but doesn't compare layouts and strides.
    `more` are further arguments of `against`, such as kernel and inputs. Raises AssertionError if
    the tensors aren't close, and ValueError if only one of rtol and atol is given.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol must both be given, or neither")
    checks = (("dtype", check_dtype), ("device", check_device))
    for label, result, reference in tensor_pairs(actual, expected, "actual"):
        if hasattr(result, "detach") and hasattr(reference, "detach"):
            for attribute in [name for name, enabled in checks if enabled]:
                _same(attribute, result, reference, label)
    against(actual, expected, rtol, atol, equal_nan=equal_nan, msg=msg, **more)


def assert_with_pcc(
    expected_pytorch_result: Any, actual_pytorch_result: Any, pcc: float = 0.9999, **more: Any
) -> tuple[bool, str]:
    """Assert as ttnn's assert_with_pcc does, and record and judge the numbers.

    The expected tensor comes first, as in ttnn. `more` are further arguments of `against`, such as
    kernel and inputs. Returns True and the PCC in words. Raises AssertionError if the PCC is too
    low; the PCC of a constant is undefined, and so too low.
    """
    comparison = against(actual_pytorch_result, expected_pytorch_result, pcc=pcc, **more)
    deficits = [numbers.get("pcc_deficit") for numbers in comparison.outputs.values()]
    coefficients = (1 - deficit for deficit in deficits if deficit is not None)
    return True, f"PCC: {min(coefficients, default=1.0)}"


class PendingComparison:
    """A comparison to which outputs can still be added."""

    def __init__(
        self, name: str | None, gate: Gate, spec: dict[str, Any], arithmetic: str | None
    ) -> None:
        self.name = None if name is None else str(name)[: handover.MAX_NAME]
        self.gate, self.spec, self.arithmetic = gate, spec, arithmetic
        self.outputs: dict[str, dict[str, Any]] = {}
        self.actual: dict[str, Tensor] = {}
        self.expected: dict[str, Tensor] = {}
        self.missed: dict[str, list[str]] = {}
        self.details: dict[str, str] = {}

    def add(self, label: str, actual: Tensor, expected: Tensor) -> None:
        """Compute the numbers of one output."""
        import numpy as np

        from gonogo import closeness

        self.actual[label], self.expected[label] = actual, expected
        a, r = actual.values, expected.values
        if a.shape != r.shape and a.ndim and r.ndim:
            self.outputs[label] = {"count": int(a.size), "format": actual.format}
            self.missed[label] = [f"shapes differ: {list(a.shape)}, expected {list(r.shape)}"]
            return
        a, r = np.broadcast_arrays(a, r)
        if a.size == 0:
            self.outputs[label], self.missed[label] = {"count": 0, "format": actual.format}, []
            return
        numbers = closeness.numbers(a, r, self.gate, actual.format)
        roundings = closeness.roundings(r, self.gate, actual.format)
        self.missed[label] = closeness.missed(self.gate, numbers)
        numbers |= {"format": actual.format, "dtype": actual.dtype}
        if roundings is not None:
            numbers["tolerance_roundings"] = roundings["times"]
            numbers["tolerance_roundings_least"] = roundings["least"]
        self.outputs[label] = numbers
        place = numbers.get("worst_index")
        if place is not None and self.missed[label]:
            at = tuple(place)
            self.details[label] = (
                f"worst at {place}: got {float(a[at])!r}, expected {float(r[at])!r},"
                f" {actual.format or actual.dtype}"
            )

    def judged(self, inputs: dict[str, Any], raw: dict[str, Any]) -> Comparison:
        """Return the comparison, judged in full if the kernel and its inputs are known.

        It never raises: a comparison that can't be judged changes no test's outcome.
        """
        within = not any(self.missed.values())
        comparison = Comparison(
            within=within, name=self.name, tolerance=self.gate.to_json(), outputs=self.outputs
        )
        has_kernel = "kernel" in self.spec or "reference" in self.spec
        if not has_kernel or not (inputs or raw):
            missing = f"{NO_SPEC} ({'inputs' if has_kernel else 'kernel'} missing)"
            loose = filter(None, map(self._loose, self.outputs))
            comparison.words = "; ".join([missing, *loose])
            return comparison
        if any(not {"max_abs", "nonfinite"} & numbers.keys() for numbers in self.outputs.values()):
            comparison.words = "nothing could be compared"
            return comparison
        try:
            return self._judged_in_full(comparison, inputs, raw)
        except Exception as problem:
            comparison.problem = handover.in_words(problem)
            return comparison

    def _judged_in_full(
        self, comparison: Comparison, inputs: dict[str, Any], raw: dict[str, Any]
    ) -> Comparison:
        """Return the comparison with the kernel's judgment, or as a worker will judge it."""
        given = {key: tensors.read_for_kernel(value, key) for key, value in inputs.items()}
        for key, tensor in self.actual.items():
            tensors.refuse_unknown(tensor, key)
        raw_arrays = {key: tensors.read(value, f"raw {key}").values for key, value in raw.items()}
        arrays = {
            key: tensor.values.astype("float32", copy=False)
            for key, tensor in {**given, **self.actual}.items()
        }
        spec = dict(self.spec)
        if "reference" not in spec:
            fields = handover.test_fields(
                spec.pop("kernel"),
                {**raw_arrays, **arrays},
                {"tolerance": comparison.tolerance, **spec},
            )
            formats = self._formats(handover.with_formats(fields["kernel"], given))
            fields["numerics"] = formats | dict(fields.get("numerics") or {})
            arrays_of_test = recorded.Arrays(fields, arrays, raw_arrays, self.name, self.arithmetic)
            if recorded.handed_over(arrays_of_test):
                comparison.words = "sent to the worker, which judges it"
                return comparison
        try:
            from gonogo.judging import comparison as comparing
            from gonogo.judging import functions
        except ImportError as problem:
            comparison.words = f"what could judge it is not installed ({problem})"
            return comparison
        if "reference" in spec:
            of_tensors = (spec.pop("reference"), given, self.actual, raw_arrays)
            options = {"tolerance": comparison.tolerance, "program": self.arithmetic, **spec}
            case: Any = functions.case_of_function(*of_tensors, **options)
        else:
            case = comparing.case_of_test(fields, arrays, raw_arrays, self.arithmetic)
        expected = {
            key: comparing.Expectation(
                tensor.values,
                self.actual[key].values,
                tensor.format,
                self.outputs[key],
                not self.missed[key],
            )
            for key, tensor in self.expected.items()
        }
        parts = comparing.judge_against(case, expected)
        return Comparison(name=self.name, arithmetic=self.arithmetic, **parts)

    def _formats(self, given: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the formats of the tensors."""
        form = next(iter(self.actual.values())).format
        formats = {
            name: known
            for name, known in tensors.kernel_formats(given).items()
            if known != "fp32" or form in ("fp32", "fp64")
        }
        numerics: dict[str, Any] = {"input": formats} if formats else {}
        if form in tensors.KERNEL_FORMATS:
            numerics["output"] = form
        return numerics

    def _loose(self, label: str) -> str:
        """Return how loose the gate is for the format of an output; "" if that is not known."""
        numbers = self.outputs[label]
        times = numbers.get("tolerance_roundings")
        if times is None:
            return ""
        least = numbers["tolerance_roundings_least"]
        words = (
            f"{label}: the tolerance is {recorded.factor(times)} times"
            f" {numbers['format']}'s own rounding"
        )
        if least is not None and least < 1:
            words += f", and at some values only {least:.2g} times: a right kernel can fail"
        elif least is not None and least < times / 2:
            words += f" ({recorded.factor(least)} times at the largest values)"
        return words

    def message(self, comparison: Comparison) -> str:
        """Return why it fails: the comparators, the place, and the judgement."""
        head = f"{self.name}: " if self.name else ""
        missed = {label: "; ".join(words) for label, words in self.missed.items() if words}
        lines = [f"{head}{label}: {words}" for label, words in missed.items()]
        lines += [f"  {label}: {words}" for label, words in self.details.items()]
        if comparison.verdict != "not_judged":
            lines.append(f"  verdict {comparison.verdict}")
        return "\n".join([*lines, *(f"  {line}" for line in comparison.words.splitlines())])


def tensor_pairs(actual: Any, expected: Any, label: str) -> list[tuple[str, Any, Any]]:
    """Return (label, actual, expected) of every tensor.

    Raises AssertionError if the two sides have different tensors.
    """
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            names, expected_names = (", ".join(map(str, side)) for side in (actual, expected))
            raise AssertionError(f"the outputs differ: {names}; expected {expected_names}")
        return [(str(key), actual[key], expected[key]) for key in actual]
    if all(
        isinstance(side, list | tuple) and any(hasattr(item, "shape") for item in side)
        for side in (actual, expected)
    ):
        if len(actual) != len(expected):
            raise AssertionError(f"{len(actual)} tensors, expected {len(expected)}")
        pairs = enumerate(zip(actual, expected, strict=True))
        return [(f"{label}[{place}]", *pair) for place, pair in pairs]
    return [(label, actual, expected)]


def first_output(spec: Mapping[str, Any]) -> str | None:
    """Return the kernel's first output, if the kernel is known here."""
    if "kernel" not in spec:
        return None
    try:
        kernel = handover.known_kernel(spec["kernel"])
    except Exception:  # a package's kernel that can't be loaded: judging says why
        return None
    if kernel is not None:
        return str(kernel.outputs[0])
    return {"layernorm_fw": "y", "layernorm_bw": "dx"}.get(str(spec["kernel"]))


def default_gate(gate: Gate, pairs: list[tuple[str, Tensor, Tensor]]) -> Gate:
    """Return the gate with torch's defaults: the largest tolerance of several dtypes."""
    from dataclasses import replace

    from gonogo.closeness import DEFAULTS

    defaults = [(0.0, 0.0)]
    for label, *both in pairs:
        for tensor in both:
            known = tensors.FORMATS.get(tensor.dtype.rpartition(".")[2].lower(), tensor.format)
            if known not in DEFAULTS:
                remedy = "give rtol and atol, or another comparator"
                has_none = f"{label} is {tensor.dtype}, which has no default tolerance"
                raise TypeError(f"{has_none}: {remedy}")
            defaults.append(DEFAULTS[known])
    rtol, atol = map(max, zip(*defaults, strict=True))
    return replace(gate, rtol=rtol, atol=atol)


def _same(attribute: str, actual: Any, expected: Any, label: str = "actual") -> None:
    value, reference = getattr(actual, attribute, None), getattr(expected, attribute, None)
    if value != reference:
        raise AssertionError(f"{label}: {attribute} {value}, expected {reference}")


__all__ = [
    "HOLLOW",
    "Comparison",
    "against",
    "assert_allclose",
    "assert_close",
    "assert_with_pcc",
    "compare",
]

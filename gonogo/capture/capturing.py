"""Record the comparisons of a test: at each line of it the worst one, with the number of all."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import FrameType
from typing import Any

from gonogo.capture.calls import Call, NotRead, is_green, read_call
from gonogo.capture.numbers import numbers
from gonogo.capture.weaknesses import WORST_FIRST, weakness_of
from gonogo.closeness import storable
from gonogo.public import recorded
from gonogo.public.dropin import PendingComparison, first_output
from gonogo.public.recorded import Comparison

MAX_REASON = 100
"""Characters of a reason that are kept."""


@dataclass(frozen=True)
class CapturedKernel:
    """A line of the table: the tests whose comparisons are judged in full.

    Attributes:
        pattern: of node ids, with * and ?.
        kernel: the kernel's name.
        inputs: tensor -> the variable of the test that has it when it compares.
        output: the tensor that is compared; None: the kernel's first.
        fields: further fields of the kernel's test, such as epsilon.
    """

    pattern: str
    kernel: str
    inputs: Mapping[str, str]
    output: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, pattern: str, fields: object) -> CapturedKernel:
        """Return the line of a table. Raises ValueError for a wrong one."""
        rest = dict(fields) if isinstance(fields, Mapping) else {}
        kernel, inputs = rest.pop("kernel", None), rest.pop("inputs", None)
        is_table = isinstance(inputs, Mapping) and all(isinstance(v, str) for v in inputs.values())
        if not isinstance(kernel, str) or not is_table or not inputs:
            raise ValueError(
                f"{pattern}: needs kernel, a name, and inputs, a table of tensor = variable;"
                f" got {fields!r}"
            )
        return cls(pattern, kernel, inputs, rest.pop("output", None), rest)

    def fits(self, test: str) -> bool:
        """Return whether a test's node id, with or without its parameters, fits the pattern."""
        return fnmatchcase(test, self.pattern) or fnmatchcase(test.partition("[")[0], self.pattern)


@dataclass
class Capture:
    """The comparisons of this process.

    Attributes:
        kernels: the table.
        calls: all that were captured.
        not_read: those that could not be, by the reason.
    """

    kernels: Sequence[CapturedKernel] = ()
    calls: int = 0
    not_read: Counter[str] = field(default_factory=Counter)
    _kernel: CapturedKernel | None = None
    _file: str = ""
    _worst: dict[str, tuple[int, Comparison]] = field(default_factory=dict)

    def begin(self, test: str, file: str) -> None:
        """Assign the following comparisons to a test, by its node id and file."""
        self._kernel = next((one for one in self.kernels if one.fits(test)), None)
        self._file, self._worst = file, {}

    def publish(self) -> None:
        """Send what a phase of the test compared to the listeners of gonogo.public.recorded."""
        worst, self._worst = self._worst, {}  # a test's threads may still compare
        for count, comparison in list(worst.values()):
            if count > 1 and comparison.words:
                comparison.words += f" (the worst of {count} calls)"
            recorded.publish(comparison)

    def observe(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        """Record a call. An error in here only counts: no test may notice."""
        try:
            self.calls += 1
            green = is_green(result)
            frame = _frame_of(self._file, sys._getframe(2))
            call = read_call(function, args, kwargs)
            comparison = self._judged(call, frame, green) or _measured(call, green)
            if comparison.problem:
                comparison = replace(_measured(call, green), problem=comparison.problem)
            comparison.name = f"{call.function}, line {frame.f_lineno}"
            count, worst = self._worst.get(comparison.name, (0, comparison))
            worst = max(worst, comparison, key=_badness)
            self._worst[comparison.name] = count + 1, worst
        except NotRead as reason:
            self.not_read[str(reason)] += 1
        except Exception as problem:
            self.not_read[f"{type(problem).__name__}: {problem}".splitlines()[0][:MAX_REASON]] += 1

    def _judged(self, call: Call, frame: FrameType, green: bool) -> Comparison | None:
        """Return the full judgment where the table has the test and its variables; else None."""
        inputs = None if self._kernel is None else _variables(self._kernel.inputs, frame)
        if self._kernel is None or inputs is None:
            return None
        spec = {"kernel": self._kernel.kernel, **self._kernel.fields}
        pending = PendingComparison(None, call.gate, spec, None)
        for pair in call.pairs:
            label = self._kernel.output or first_output(spec) or pair.label
            pending.add(label, pair.actual, pair.expected)
            # the test's own gate decides: it may leave NaN out
            pending.missed[label] = [] if green else pending.missed[label] or ["red"]
        return pending.judged(inputs, {})


def _frame_of(file: str, caller: FrameType) -> FrameType:
    """Return the innermost frame in the test's file; the caller's where there is none."""
    frame: FrameType | None = caller
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame or caller


def _variables(names: Mapping[str, str], frame: FrameType) -> dict[str, Any] | None:
    """Return tensor -> value from the innermost frame of the test's file that has all variables."""
    outer: FrameType | None = frame
    file = frame.f_code.co_filename
    while outer is not None:
        known = outer.f_locals
        if outer.f_code.co_filename == file and known.keys() >= set(names.values()):
            return {tensor: known[name] for tensor, name in names.items()}
        outer = outer.f_back
    return None


def _measured(call: Call, green: bool) -> Comparison:
    """Return the numbers of a call, and why it is hollow if it is green."""
    outputs, clauses = {}, {}
    for pair in call.pairs:
        statistics = numbers(pair.actual, pair.expected, call.gate)
        if green and (weakness := weakness_of(call, pair, statistics)):
            statistics["weakness"], clause = weakness
            clauses[_rank(weakness[0])] = f"{_gate(call, statistics)} holds, but {clause}"
        outputs[pair.label] = storable(statistics)
    words = clauses[max(clauses)] if clauses else ""
    return Comparison(within=green, tolerance=call.gate.to_json(), outputs=outputs, words=words)


def _gate(call: Call, statistics: Mapping[str, Any]) -> str:
    """Return the function with its gate, and the value that passed it, for display."""
    gate = ", ".join(f"{name} {value:g}" for name, value in call.gate.to_json().items())
    value = f"largest error {statistics.get('max_abs', 0.0):.3g}"
    if call.gate.pcc is not None:
        deficit = statistics.get("pcc_deficit")
        value = "PCC undefined" if deficit is None else f"PCC {1 - deficit:.7g}"
    return f"{call.function} ({gate}; {value})"


def _rank(weakness: str) -> int:
    """Return how bad a weakness is; 0 for none."""
    return len(WORST_FIRST) - WORST_FIRST.index(weakness) if weakness else 0


def _badness(comparison: Comparison) -> tuple[bool, int, float]:
    """Return how bad a comparison is: a hollow pass, then a weakness, then the largest error."""
    ratios = [of.get("tolerance_ratio") or 0.0 for of in comparison.outputs.values()]
    return comparison.hollow, _rank(comparison.weakness), max(ratios, default=0.0)

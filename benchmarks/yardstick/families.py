"""Where the kernels come from: the emulated Wormhole, the strangers, the libraries' sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.yardstick.bench import Arrays, Bench, Kernel
from gonogo.gauge import kernels as gauge_kernels
from gonogo.gauge.kernels import Part
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels import registry
from gonogo.kernels.kind import Numerics
from gonogo.spec.test_spec import TestSpec

NORMAL: dict[str, Any] = {
    "regime": "normal",
    "gamma": {"regime": "normal", "mean": 1, "std": 0.1},
    "beta": {"regime": "normal", "std": 0.1},
}
EMULATED: Sequence[tuple[str, tuple[int, ...], dict[str, Any]]] = (
    ("layernorm_fw", (32, 64), {}),
    ("layernorm_fw", (32, 519), {}),
    ("layernorm_fw", (8, 4096), {}),
    ("layernorm_fw", (33, 519), NORMAL),
    ("layernorm_bw", (16, 130), {}),
    ("layernorm_bw", (32, 1024), {}),
    ("layernorm_bw", (8, 8462), {}),
    ("layernorm_bw", (33, 519), {name: NORMAL[name] for name in ("regime", "gamma")}),
    ("rmsnorm_fw", (32, 519), {}),
)
"""Kernel, shape and inputs of the emulator's tests; the numerics are Wormhole's default, bf16."""

EXACT_RTOL = 1e-11
"""Two float64 functions that differ by less are the same function: N u is below it up to 2^16."""


@dataclass(frozen=True)
class Family:
    """A source of benches, and what it leaves out, with the reason."""

    name: str
    sentence: str
    benches: Callable[[int, int], Iterator[Bench]]
    """From (seeds, tests of each mutant) to its benches."""
    left_out: tuple[str, ...] = ()


def emulated(seeds: int, tests: int) -> Iterator[Bench]:
    """Yield the emulator's tests with its right kernels and mutants; every mutant runs on all."""
    for kind, shape, inputs in EMULATED:
        test = TestSpec.parse({"kernel": kind, "shape": list(shape), "inputs": inputs})
        numerics = registry.numerics(test)
        for seed in range(seeds):
            given = quantise(test, generate(test, seed))
            parts = [part for part in gauge_kernels.right(test) if part.judged is test]
            rights = tuple(
                Kernel(part.name, True, _emulator(numerics, part), turned=part.turned)
                for part in parts
            )
            correct = _emulator(numerics, parts[0])
            mutants = tuple(
                Kernel(
                    part.name,
                    False,
                    _emulator(numerics, part),
                    correct,
                    no_op=not part.unsure and _same_function(test, given, part.build),
                )
                for part in gauge_kernels.wrong(test)
            )
            name = f"{kind} {'x'.join(map(str, shape))} {'normal' if inputs else 'uniform'}"
            yield Bench(
                "emulated Wormhole", name, test, seed, given, (*rights, *mutants), "tt-train"
            )


def _emulator(numerics: Numerics, part: Part) -> Callable[[Arrays], Arrays]:
    def run(given: Arrays) -> Arrays:
        if part.unsure:  # its fault is what the run before left behind
            numerics.run(part.test, given, part.build)
        return numerics.run(part.test, given, part.build, position=1)

    return run


def _same_function(test: TestSpec, given: Arrays, build: str) -> bool:
    """Return whether a build computes the right function in exact arithmetic."""
    numerics = registry.numerics(test)
    right, wrong = numerics.reference(test, given), numerics.ideal(test, given, build)
    return all(
        np.allclose(wrong[name], value, rtol=EXACT_RTOL, atol=EXACT_RTOL * np.abs(value).max())
        for name, value in right.items()
    )


def strangers(seeds: int, tests: int) -> Iterator[Bench]:
    """Yield the strangers' tests; which tests a mutant runs on goes round, as its base does."""
    from benchmarks.strangers.cases import CASES
    from benchmarks.strangers.plugin import Stranger
    from benchmarks.strangers.rights import BASES, RIGHTS
    from benchmarks.strangers.wrongs import WRONGS

    for kind in ("layernorm_fw", "layernorm_bw"):
        cases = [case for case in CASES if case.test.kernel == kind]
        names = [name for kernel, name in WRONGS if kernel == kind]
        for number, case in enumerate(cases):
            spec = case.test.canonical()
            rights = [
                Kernel(right.name, True, partial(Stranger(f"right:{right.name}").run, spec))
                for right in RIGHTS.values()
                if kind in right.kernels
                and not right.exotic
                and not (right.centred_only and case.offset)
            ]
            mutants = []
            for place, name in enumerate(names):
                if (number - place) % len(cases) >= tests:
                    continue
                build = f"{kind}:{name}:{BASES[(place + number) % len(BASES)].name}"
                mutants.append(
                    Kernel(
                        name,
                        False,
                        partial(Stranger(f"wrong:{build}").run, spec),
                        partial(Stranger(f"clean:{build}").run, spec),
                    )
                )
            test = TestSpec.parse({**spec, "tolerance": {}})
            for seed in range(seeds):
                given = quantise(test, generate(test, seed))
                yield Bench("strangers", case.name, test, seed, given, (*rights, *mutants))


EXACT_REGIME = "exact"
LIBRARY_KINDS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "groupnorm_fw")


def libraries(seeds: int, tests: int) -> Iterator[Bench]:
    """Yield the libraries' cases with the readable sources and their one-line edits.

    Which cases a mutant runs on goes round, in each format. Right sources leave out the failures
    that the package lists before a run. Raises ImportError without benchmarks.libraries.
    """
    from benchmarks.libraries import cases, failures, mutants

    for kind in LIBRARY_KINDS:
        for output_format in cases.FORMATS:
            listed = [
                case for case in cases.cases(kind, output_format) if case.regime != EXACT_REGIME
            ]
            sources = [
                source
                for source in mutants.SOURCES
                if source.kind == kind and source.suits(output_format)
            ]
            edits = [
                mutants.Mutant(source, edit) for source in sources for edit in mutants.EDITS[kind]
            ]
            for number, case in enumerate(listed):
                test = TestSpec.parse(library_test(case))
                for seed in range(seeds):
                    given = {
                        name: values.reshape(test.flat_shape_of(name))
                        for name, values in cases.inputs(case, seed).items()
                    }
                    rights = tuple(
                        Kernel(source.name, True, _source(mutants, source, case, seed, None))
                        for source in sources
                        if not failures.listed("", source.name, case, seed)
                    )
                    wrongs = tuple(
                        Kernel(
                            mutant.name,
                            False,
                            _source(mutants, mutant.source, case, seed, mutant.edit.name),
                            _source(mutants, mutant.source, case, seed, None),
                            no_op=mutants.is_no_op(mutant, case, seed),
                        )
                        for place, mutant in enumerate(edits)
                        if (number - place) % len(listed) < tests
                    )
                    yield Bench(
                        "libraries' sources",
                        case.name,
                        test,
                        seed,
                        given,
                        (*rights, *wrongs),
                        produced=cases.KINDS[kind].outputs,
                    )


def library_test(case: Any) -> dict[str, Any]:
    """Return the test that judges a case of benchmarks.libraries: all in its format."""
    numerics = dict.fromkeys(("input", "output", "buffers"), case.format) | {"statistics": "own"}
    data: dict[str, Any] = {
        "kernel": case.kind,
        "shape": list(case.shape),
        "epsilon": case.epsilon,
        "numerics": numerics,
    }
    return data | ({"parameters": {"num_groups": case.groups}} if case.groups else {})


def _source(
    module: Any, source: Any, case: Any, seed: int, edit: str | None
) -> Callable[[Arrays], Arrays]:
    """Return the run of a source; it draws the same inputs from the case and the seed itself."""

    def run(given: Arrays) -> Arrays:
        outputs: Mapping[str, Any] = module.run(source, case, seed, edit)
        return outputs

    return run


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(
            "emulated",
            "the emulated Wormhole's right kernels and mutants, bf16, judged as tt-train's",
            emulated,
            (
                "right kernels with other numerics (srcb-bf16, hifi3): they have a budget of their"
                " own",
            ),
        ),
        Family(
            "strangers",
            "benchmarks.strangers, in bf16 and fp32",
            strangers,
            (
                "right strangers that round to odd: no kernel that we know stores so",
                "right strangers of the one-pass form on offset inputs: they are wrong there",
            ),
        ),
        Family(
            "libraries",
            "benchmarks.libraries: readable NumPy sources with one-line edits, in fp32, bf16 and"
            " fp16",
            libraries,
            (
                "right sources on inputs that benchmarks.libraries.failures lists for them: fp16"
                " overflow of a stored square, one-signed 16-bit column sums",
                "the regime `exact`: its inputs are made for a check of GoNoGo's own",
                "rmsnorm_bw: it is newer than these figures",
                "the libraries' own kernels: they need environments of their own (make libraries)",
            ),
        ),
    )
}

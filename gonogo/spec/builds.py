"""Builds: the software under test, their order, and what they promise (an arithmetic, the
outputs they produce).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.kernels.registry import emulated

ARITHMETICS = ("generic", "tt-train", "fp32", "torch", "torch-eager", "ttnn")
"""Arithmetic models that a build may name: one dataflow's budget must not judge another's kernel."""

EMULATOR = "emulator"
MAX_NAME = 200


@dataclass(frozen=True)
class Build:
    """A tt-metal commit, a ttnn version, a container image, an emulated defect.

    Nothing in it is executable: what a name means (interpreter, environment, command) stands in the
    worker host's own builds file. Builds of one `branch` (a branch, say) are ordered by `sequence`.
    """

    name: str
    executor: str
    branch: str = "default"
    sequence: int = 0
    commit: str | None = None
    arithmetic: str | None = None
    """The arithmetic model of its kernels; None: the test's numerics decide."""
    outputs: tuple[str, ...] | None = None
    """The outputs it produces; None = all. The others are `not produced`, an undeclared missing one
    is an `error`."""

    @classmethod
    def parse(cls, data: object, path: str = "build") -> Build:
        """From a JSON object. Raises FieldError for an unknown field, an empty name, an arithmetic that
        doesn't exist.
        """
        given = fields.mapping(data, path)
        fields.known(
            given,
            ("name", "executor", "branch", "sequence", "commit", "arithmetic", "outputs"),
            path,
        )
        words = {
            name: _text(given.get(name, otherwise), fields.join(path, name))
            for name, otherwise in _TEXTS.items()
        }
        arithmetic = given.get("arithmetic")
        return cls(
            **words,
            sequence=fields.integer(
                given.get("sequence", 0), fields.join(path, "sequence"), least=0, most=2**53
            ),
            commit=None
            if given.get("commit") is None
            else _text(given["commit"], fields.join(path, "commit")),
            arithmetic=None
            if arithmetic is None
            else fields.choice(arithmetic, ARITHMETICS, fields.join(path, "arithmetic")),
            outputs=_outputs(given.get("outputs"), fields.join(path, "outputs")),
        )

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts builds: by branch, then sequence; the name only makes ties definite."""
        return (self.branch, self.sequence, self.name)

    def produces(self, output: str) -> bool:
        """Whether the build is meant to give this output."""
        return self.outputs is None or output in self.outputs

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types; Build.parse gives the same build back."""
        return {
            "name": self.name,
            "executor": self.executor,
            "branch": self.branch,
            "sequence": self.sequence,
            "commit": self.commit,
            "arithmetic": self.arithmetic,
            "outputs": None if self.outputs is None else list(self.outputs),
        }


_TEXTS: Mapping[str, str | None] = {"name": None, "executor": None, "branch": "default"}


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME:
        raise FieldError(path, value, "must be text", limit=f"1 to {MAX_NAME} characters")
    return value


def _outputs(value: object, path: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value:
        raise FieldError(path, value, "must be a list of output names, or null for all")
    return tuple(sorted({_text(each, path) for each in value}))


def ordered(builds: Iterable[Build]) -> list[Build]:
    """Builds by (branch, sequence)."""
    return sorted(builds, key=lambda build: build.order)


def emulator_builds() -> Mapping[str, Build]:
    """Name -> build of each emulated build of every kernel, `correct` first, in the order in which
    they are registered.
    """
    return _emulated(emulated())


@cache
def _emulated(names: tuple[str, ...]) -> Mapping[str, Build]:
    return {
        name: Build(
            name=name, executor=EMULATOR, branch=EMULATOR, sequence=sequence, arithmetic="tt-train"
        )
        for sequence, name in enumerate(names)
    }


def emulator_build(name: str, path: str = "build") -> Build:
    """The emulator's build of that name; FieldError with the list of names for another."""
    builds = emulator_builds()
    return builds[fields.choice(name, tuple(builds), path)]


TORCH = "torch"
TORCH_VARIANTS = {
    "eager": "torch-eager",
    "decomposed": "torch",
    "compiled": "torch",
}
"""How torch runs a kernel, and the arithmetic model of its LayerNorm so run: ATen's CPU kernel keeps
bf16 column sums in bf16."""
LINEAR = "linear"
"""A downstream output of layernorm_fw: y after a bf16 linear with fixed weights."""


def _torch_builds() -> Iterable[tuple[str, str, tuple[str, ...] | None]]:
    """(name, arithmetic, outputs) of each: on a CPU, then on a GPU."""
    for device in ("", "cuda-"):
        for variant, arithmetic in TORCH_VARIANTS.items():
            of_layer_norm = "torch" if device else arithmetic
            name = f"torch-{device}{variant}"
            yield name, of_layer_norm, None
            yield f"{name}-group-norm", "torch", None
            yield f"{name}-linear", of_layer_norm, (*_KERNEL_OUTPUTS, LINEAR)


_KERNEL_OUTPUTS = ("dbeta", "dgamma", "dx", "mean", "rstd", "y")
TORCH_BUILDS = tuple(name for name, _, _ in _torch_builds())
"""What the torch executor knows by itself (docs/torch.md); any other name gets its meaning from the
host's builds file."""


@cache
def torch_builds() -> Mapping[str, Build]:
    """Name -> build of each of TORCH_BUILDS, in that order."""
    return {
        name: Build(
            name=name,
            executor=TORCH,
            branch=TORCH,
            sequence=sequence,
            arithmetic=arithmetic,
            outputs=outputs,
        )
        for sequence, (name, arithmetic, outputs) in enumerate(_torch_builds())
    }


TTNN = "ttnn"
TTNN_BUILDS: Mapping[str, tuple[str, tuple[str, ...] | None]] = {
    "ttnn": ("ttnn", ("dbeta", "dgamma", "dx", "y")),
    "ttnn-legacy": ("ttnn", ("y",)),
    "ttnn-welford": ("ttnn", ("y",)),
    "ttnn-moreh": ("ttnn", None),
    "ttnn-generic-bw": ("generic", ("dx",)),
    "ttnn-generic-bw-double-subtract": ("generic", ("dx",)),
}
"""Name -> (arithmetic model, outputs) of what the ttnn executor runs on whatever ttnn a host has
(docs/wormhole.md): ttnn.layer_norm, which puts out y only, with moreh's backward; its other two
reductions; moreh's own forward; and our LayerNorm backward in C++ for ttnn.generic_op, right and
with a planted fault, which stores every step as bf16, as the `generic` arithmetic expects."""


@cache
def ttnn_builds() -> Mapping[str, Build]:
    """Name -> build of each of TTNN_BUILDS, in that order."""
    return {
        name: Build(
            name=name,
            executor=TTNN,
            branch=TTNN,
            sequence=sequence,
            arithmetic=arithmetic,
            outputs=outputs,
        )
        for sequence, (name, (arithmetic, outputs)) in enumerate(TTNN_BUILDS.items())
    }


_OWN: Mapping[str, Callable[[], Mapping[str, Build]]] = {
    EMULATOR: emulator_builds,
    TORCH: torch_builds,
    TTNN: ttnn_builds,
}
"""Executors of ours whose builds have names of ours, and what gives them: whatever else a build is
called, a worker's host defines it."""


def own_builds(executor: str | None = None) -> Mapping[str, Build]:
    """Name -> build that needs no entry in a builds file; empty for an executor without such names.
    None: of all executors.
    """
    if executor is None:
        return {name: build for ours in _OWN.values() for name, build in ours().items()}
    return _OWN[executor]() if executor in _OWN else {}


def known_build(name: str, executor: str | None = None) -> Build | None:
    """The build of that name which we define ourselves, if there is one."""
    return own_builds(executor).get(name)


DEFAULT_BUILDS: Mapping[str, str] = {TTNN: "ttnn"}
"""What `gonogo check` runs for an executor when no build is named. Not the emulator: of its builds,
most are wrong on purpose."""

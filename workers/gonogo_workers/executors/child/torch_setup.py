"""torch as its executor starts it, and the properties of a build."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Read when CUDA and inductor start. A GPU's matmuls need the first to be deterministic; a pool of
# compilers would outlive a short child.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

try:
    import torch
except ImportError as problem:
    raise ImportError(
        f"{sys.executable} has no torch ({problem}); name an interpreter that has: "
        "python = ... under [executors.torch] in the builds file"
    ) from problem

__all__ = ["Setup", "torch"]

VARIANTS = ("eager", "decomposed", "compiled")
NORMS = ("layer", "group")
NAME = re.compile(
    r"torch-(?P<cuda>cuda-)?(?P<variant>eager|decomposed|compiled)"
    r"(?P<group>-group-norm)?(?P<linear>-linear)?"
)
OPTIONS = ("variant", "norm", "device", "linear", "threads", "narrow")


@dataclass(frozen=True)
class Setup:
    """The properties of a build."""

    variant: str = "eager"
    norm: str = "layer"
    device: str = "cpu"
    linear: int | None = None
    """The seed of the linear that follows y; None without a linear."""
    threads: int = 1
    """A fixed number: rows' sums are split among threads, so another changes the last bits."""
    narrow: bool = False
    """True: a decomposed backward pass keeps its intermediates in 16 bits.

    torch's decompositions do that when nothing fuses them."""

    @classmethod
    def of(cls, build: str, host: Mapping[str, Any]) -> Setup:
        """Return the properties for a build's name and its table in the builds file.

        Raises ValueError for an unknown build.
        """
        known = NAME.fullmatch(build)
        options = host.get("options") or {} if host.get("name") == build else {}
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise ValueError(
                f"build {build!r}: unknown option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}"
            )
        if known is None and "variant" not in options:
            names = (
                "torch-eager, torch-decomposed, torch-compiled, each also with -group-norm or "
                "-linear, and as torch-cuda-..."
            )
            raise ValueError(
                f"unknown build {build!r}: {names}; another name needs options with a variant in "
                "the builds file"
            )
        named: dict[str, Any] = {}
        if known is not None:
            named = {
                "variant": known["variant"],
                "norm": "group" if known["group"] else "layer",
                "device": "cuda" if known["cuda"] else "cpu",
                "linear": 0 if known["linear"] else None,
            }
        linear = options.get("linear", named.get("linear"))
        setup = cls(
            **{
                **named,
                **options,
                "linear": linear.get("seed", 0) if isinstance(linear, Mapping) else linear,
            }
        )
        for value, allowed, name in (
            (setup.variant, VARIANTS, "variant"),
            (setup.norm, NORMS, "norm"),
        ):
            if value not in allowed:
                raise ValueError(
                    f"build {build!r}: option {name} is {value!r}, not one of {', '.join(allowed)}"
                )
        if not isinstance(setup.threads, int) or setup.threads < 1:
            raise ValueError(
                f"build {build!r}: option threads is {setup.threads!r}, not a count of threads"
            )
        if not isinstance(setup.narrow, bool):
            raise ValueError(
                f"build {build!r}: option narrow is {setup.narrow!r}, not true or false"
            )
        if setup.linear is not None and (
            isinstance(setup.linear, bool) or not isinstance(setup.linear, int) or setup.linear < 0
        ):
            raise ValueError(f"build {build!r}: option linear is {linear!r}, not {{seed = 0}}")
        return setup

"""The built-in executors: one row says what each runs, needs and costs. The rest is derived.

Any other executor is a plug-in (docs/executors.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

EMULATOR = "emulator"


@dataclass(frozen=True)
class OwnBuild:
    """A build that an executor defines itself."""

    name: str
    sentence: str
    """The kernel that it runs."""
    outputs: tuple[str, ...] | None = None
    """The outputs that it produces; None: all."""


@dataclass(frozen=True)
class Executor:
    """A built-in executor.

    Its module is NAME_executor in gonogo_workers/executors/child, with a class NameExecutor.
    """

    name: str
    sentence: str
    runs: Literal["kernels", "tests"]
    """kernels: it gives arrays; tests: it runs tests that exist, and reports them."""
    seed_s: float
    """The first guess of the seconds per seed, until a job of the workload has been measured."""
    element_s: float = 0.0
    """The same per element of the shape, in addition."""
    package: str | None = None
    """A package that its interpreter must have."""
    command: Literal["none", "program", "arguments"] = "none"
    """The kind of a build's `command` in the builds file."""
    stages: bool = False
    on_chips: bool = False
    """Its kernels run on a chip, where the host has one; elsewhere it gets a virtual device."""
    on_wormhole: bool = False
    """On a Wormhole, real or emulated: its kernels multiply by 1/N, truncated to bf16."""
    builds: tuple[OwnBuild, ...] = ()
    """The builds that it defines itself. The host's builds file defines any other name."""
    default_build: str | None = None
    """The one that `gonogo check` runs if none is named."""
    canary: str | None = None
    """The one known to be right that tries a device; None: only the builds file has one."""
    has_watcher: bool = False
    """tt-metal's watcher sees its kernels, without an entry in the builds file."""


TORCH_VARIANTS = {
    "eager": "ATen's own kernel",
    "decomposed": "torch's decomposition of the kernel, one operation after the other",
    "compiled": "the kernel by torch.compile",
}
"""The ways in which torch runs a kernel."""
LINEAR = "linear"
"""A downstream output of layernorm_fw: y after a bf16 linear layer with fixed weights."""
_LINEAR_OUTPUTS = ("dbeta", "dgamma", "dx", "mean", "rstd", "y", LINEAR)


def _torch_builds() -> Iterator[OwnBuild]:
    """Yield torch's builds on a CPU, then on a GPU (docs/torch.md)."""
    for device, place in (("", "on a CPU"), ("cuda-", "on a GPU")):
        for variant, what in TORCH_VARIANTS.items():
            name, sentence = f"torch-{device}{variant}", f"It runs {what}, {place}"
            yield OwnBuild(name, f"{sentence}.")
            yield OwnBuild(f"{name}-group-norm", f"{sentence}; LayerNorm by native_group_norm.")
            linear = f"{sentence}; then a linear layer amplifies differences."
            yield OwnBuild(f"{name}-linear", linear, _LINEAR_OUTPUTS)


_ROWS = (
    # about 7e6 elements a second on two cores
    Executor(EMULATOR, "kernels in emulated Wormhole arithmetic", "kernels", seed_s=0.003,
        element_s=1.4e-7, on_wormhole=True, default_build="correct", canary="correct"),
    Executor("torch", "PyTorch's kernels on a CPU or a GPU", "kernels", seed_s=0.003,
        element_s=1e-7, package="torch", builds=tuple(_torch_builds()),
        default_build="torch-eager"),
    # bound by the host's comparison, about 3e7 elements a second
    # Rows that don't fit a core run another program, so that no build declares one.
    Executor("ttnn", "ttnn's kernels on a Tenstorrent chip", "kernels", seed_s=0.02, element_s=4e-8,
        package="ttnn", on_chips=True, on_wormhole=True,
        builds=(
            OwnBuild("ttnn", "ttnn's own operations, with moreh's LayerNorm backward.",
                ("dbeta", "dgamma", "dx", "y")),
            OwnBuild("ttnn-fast", "Sums in fp32 by the matrix unit; softmax without the maximum.",
                ("y",)),
            OwnBuild("ttnn-legacy", "ttnn.layer_norm with its legacy reduction.", ("y",)),
            OwnBuild("ttnn-welford", "ttnn.layer_norm with Welford's reduction.", ("y",)),
            OwnBuild("ttnn-moreh", "moreh's own forward and backward passes."),
            OwnBuild("ttnn-generic-bw", "Our LayerNorm backward in C++, by ttnn.generic_op.",
                ("dx",)),
            OwnBuild("ttnn-generic-bw-double-subtract", "The same, but s1 is subtracted twice.",
                ("dx",)),
        ),
        default_build="ttnn", canary="ttnn", has_watcher=True),
    Executor("gtest", "the tests of a GoogleTest program", "tests", seed_s=5.0, command="program",
        on_chips=True),
    Executor("pytest", "the tests of a pytest suite", "tests", seed_s=5.0, package="pytest",
        command="arguments", stages=True, on_chips=True),
)  # fmt: skip
EXECUTORS: Mapping[str, Executor] = {row.name: row for row in _ROWS}
"""Name -> built-in executor. No plug-in may have one of these names."""
REPORTERS = tuple(row.name for row in _ROWS if row.runs == "tests")
"""Our executors that run selections. All our others run kernels; a plug-in may do either."""
ON_WORMHOLE = frozenset(row.name for row in _ROWS if row.on_wormhole)
ON_CHIPS = frozenset(row.name for row in _ROWS if row.on_chips)

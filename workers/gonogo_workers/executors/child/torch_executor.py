"""PyTorch's LayerNorm, RMSNorm and group norm as an executor, on CPU or GPU.

They run eager, decomposed or compiled. The executor runs in the build's interpreter, so it imports
nothing of GoNoGo: only the standard library, NumPy and torch. A build is a name of
`gonogo.spec.builds.TORCH_BUILDS`, or any name to which the host's builds file gives options:
{"variant": "eager", "norm": "group", "device": "cuda", "linear": {"seed": 0}, "threads": 4}.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

VARIANTS = ("eager", "decomposed", "compiled")
NORMS = ("layer", "group")
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NAME = re.compile(
    r"torch-(?P<cuda>cuda-)?(?P<variant>eager|decomposed|compiled)"
    r"(?P<group>-group-norm)?(?P<linear>-linear)?"
)
OPTIONS = ("variant", "norm", "device", "linear", "threads", "narrow")
MAX_WEIGHTS = 2**26
"""The largest downstream linear, N x N: 128 MiB in bf16."""
FIXED = {"accumulate": "fp32", "fidelity": "hifi4"}
"""Numerics that torch offers no choice of: fp32 accumulators, exact products."""
ALL = [True, True, True]

Array = NDArray[np.float32]
Tensor = Any


class CannotServe(ValueError):
    """The test asks for something that this build can't do."""


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


class TorchExecutor:
    """Runs one build; see docs/executors.md for the contract and docs/torch.md for the builds."""

    def __init__(self, build: str) -> None:
        """Raise ValueError for an unknown build, RuntimeError without its compiler or its GPU."""
        self.setup = Setup.of(build, json.loads(os.environ.get("GONOGO_BUILD") or "{}"))
        if self.setup.variant == "compiled" and self.setup.device == "cpu":
            compiler = os.environ.get("CXX")
            if not any(
                shutil.which(name) for name in ([compiler] if compiler else ["g++", "clang++"])
            ):
                raise RuntimeError(
                    f"build {build!r} is compiled and needs a C++ compiler: g++ or clang++ on "
                    "PATH, or CXX naming one"
                )
        if self.setup.device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError(
                f"build {build!r} needs a GPU: this torch ({torch.__version__}) sees none"
            )
        torch.set_num_threads(self.setup.threads)
        torch.use_deterministic_algorithms(True)
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._weights: dict[int, Tensor] = {}
        if self.setup.variant == "compiled":
            # Each shape is compiled separately, so that its code doesn't depend on earlier shapes
            torch._dynamo.config.recompile_limit = (
                torch._dynamo.config.accumulated_recompile_limit
            ) = 2**20
            torch._inductor.config.cpp.threads = self.setup.threads

    def run(self, test: Mapping[str, Any], inputs: dict[str, Array]) -> dict[str, Array]:
        """Run the kernel as the contract says. Raises CannotServe for numerics that torch lacks."""
        shape, epsilon = tuple(test["shape"]), float(test.get("epsilon", 1e-6))
        tensors = {name: self._tensor(test, name, array) for name, array in inputs.items()}
        self._check(test, tensors)
        shapes = {"mean": shape[:-1], "rstd": shape[:-1], "dgamma": shape[-1:], "dbeta": shape[-1:]}
        kernel = test["kernel"]
        if kernel == "layernorm_fw":
            outputs = self._forward(tensors, epsilon)
        elif kernel == "layernorm_bw":
            outputs = self._backward(tensors, epsilon)
        elif kernel == "rmsnorm_fw":
            outputs = self._plain(_rms_norm, _decomposed_rms_norm, tensors, epsilon)
        elif kernel == "rmsnorm_bw":
            outputs = self._rms_backward(tensors, epsilon)
        elif kernel == "groupnorm_fw":
            groups = int(test.get("parameters", {}).get("num_groups", 1))
            shapes = dict.fromkeys(("mean", "rstd"), (shape[0], groups))
            samples = {**tensors, "x": tensors["x"].reshape(shape[0], shape[1], -1)}
            outputs = self._plain(_group_norm, _decomposed_group_norm, samples, epsilon, groups)
        else:
            raise CannotServe(
                "kernel: torch knows layernorm_fw, layernorm_bw, rmsnorm_fw, rmsnorm_bw and "
                f"groupnorm_fw here, not {kernel}"
            )
        return {name: _array(value, shapes.get(name, shape)) for name, value in outputs.items()}

    def _plain(
        self,
        native: Callable[..., Any],
        decomposed: Callable[..., Any],
        t: Mapping[str, Tensor],
        epsilon: float,
        *more: Any,
    ) -> dict[str, Tensor]:
        """Run a kernel that torch has in one way only.

        Builds with a group norm or a linear in its place don't have it.
        """
        self._check_plain()
        function = decomposed if self.setup.variant == "decomposed" else native
        affine = [t[name] for name in ("gamma", "beta") if name in t]

        def whole(x: Tensor, *affine: Tensor) -> Any:
            return function(x, *affine, epsilon, *more)

        with torch.no_grad():
            outputs: dict[str, Tensor] = self._maybe_compiled(
                whole, (native.__name__, epsilon, *more), t["x"], *affine
            )
        return outputs

    def _check_plain(self) -> None:
        """Raise CannotServe for a build that has a group norm or a linear in LayerNorm's place."""
        if self.setup.norm != "layer" or self.setup.linear is not None:
            raise CannotServe(
                "kernel: this build is a LayerNorm in another way; torch-eager, -decomposed and "
                "-compiled run it"
            )

    def _rms_backward(self, t: Mapping[str, Tensor], epsilon: float) -> dict[str, Tensor]:
        """Run RMSNorm's gradients: autograd's, or torch's decomposition of them.

        torch has no kernel on a CPU that is given rstd; the decomposition takes one.
        """
        self._check_plain()
        _check_gradient(t)
        x, gamma, dy = t["x"], t["gamma"], t["dy"]
        if self.setup.variant == "decomposed":
            with torch.no_grad():
                rstd = t["rstd"] if "rstd" in t else _decomposed_rms_norm(x, gamma, epsilon)["rstd"]
                gradients = _decomposed_rms_backward(dy, x, rstd.reshape(-1, 1), gamma)
        elif "rstd" in t:
            raise CannotServe(
                "numerics.statistics: torch's RMSNorm computes rstd itself (own); "
                "torch-decomposed takes a given one"
            )
        else:

            def forward(x: Tensor, gamma: Tensor) -> Tensor:
                return torch.nn.functional.rms_norm(x, x.shape[1:], gamma, epsilon)

            leaves = [tensor.detach().requires_grad_() for tensor in (x, gamma)]
            y = self._maybe_compiled(forward, ("rms autograd", epsilon), *leaves)
            gradients = torch.autograd.grad(y, leaves, dy)
        return dict(zip(("dx", "dgamma"), gradients, strict=True))

    def _tensor(self, test: Mapping[str, Any], name: str, array: Array) -> Tensor:
        """Return an input on the device, in its format; x and dy as rows.

        The format represents its values exactly.
        """
        formats = test.get("numerics", {}).get("input", "bf16")
        format_name = formats if isinstance(formats, str) else formats.get(name, "bf16")
        if format_name not in FORMATS:
            raise CannotServe(
                f"numerics.input: torch has no {format_name}, only {', '.join(FORMATS)}"
            )
        flat = array.reshape(-1, test["shape"][-1]) if name in ("x", "dy") else array.reshape(-1)
        dtype = FORMATS[format_name]
        if self.setup.device != "cpu" and name in ("mean", "rstd"):
            dtype = torch.float32  # a GPU's kernels return and expect this format
        return torch.from_numpy(flat).to(device=self.setup.device, dtype=dtype)

    def _check(self, test: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Raise CannotServe for numerics, memory or programs that torch can't provide."""
        numerics = test.get("numerics", {})
        for name, only in FIXED.items():
            if numerics.get(name, only) != only:
                raise CannotServe(f"numerics.{name}: torch has {only} only, not {numerics[name]}")
        for name in ("memory", "program"):
            if name in test:
                raise CannotServe(f"{name}: torch has the default only")
        output = numerics.get("output", "bf16")
        if FORMATS.get(output) is not tensors["x"].dtype:
            raise CannotServe(
                "numerics.output: torch gives its result in the format of x, "
                f"{_format_of(tensors['x'])}, not in {output}"
            )

    def _forward(self, t: Mapping[str, Tensor], epsilon: float) -> dict[str, Tensor]:
        x, gamma, beta = t["x"], t["gamma"], t["beta"]
        weights = None if self.setup.linear is None else self._linear(x.shape[1])
        group = self.setup.norm == "group"

        def norm(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            if self.setup.variant == "decomposed":
                return _decomposed_forward(x, gamma, beta, epsilon, group)
            return _native_forward(x, gamma, beta, epsilon, group)

        def whole(
            x: Tensor, gamma: Tensor, beta: Tensor, weights: Tensor | None
        ) -> tuple[Tensor, ...]:
            y, mean, rstd = norm(x, gamma, beta)
            if weights is None:
                return y, mean, rstd
            return y, mean, rstd, torch.nn.functional.linear(y.to(torch.bfloat16), weights)

        with torch.no_grad():
            outputs = self._maybe_compiled(whole, ("forward", epsilon), x, gamma, beta, weights)
        return dict(zip(("y", "mean", "rstd", "linear"), outputs, strict=False))

    def _backward(self, t: Mapping[str, Tensor], epsilon: float) -> dict[str, Tensor]:
        _check_gradient(t)
        x, gamma, dy = t["x"], t["gamma"], t["dy"]
        group = self.setup.norm == "group"
        beta = torch.zeros_like(gamma)
        decomposed, wide = self.setup.variant == "decomposed", not self.setup.narrow
        if "mean" in t:  # statistics: given

            def backward(
                dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor, beta: Tensor
            ) -> tuple[Tensor, ...]:
                if decomposed:
                    return _decomposed_backward(dy, x, mean, rstd, gamma, beta, group, wide)
                return _native_backward(dy, x, mean, rstd, gamma, beta, group)

            with torch.no_grad():
                gradients = self._maybe_compiled(
                    backward, ("backward",), dy, x, t["mean"], t["rstd"], gamma, beta
                )
        elif decomposed:
            with torch.no_grad():
                _, mean, rstd = _decomposed_forward(x, gamma, beta, epsilon, group)
                gradients = _decomposed_backward(
                    dy, x, mean.reshape(-1), rstd.reshape(-1), gamma, beta, group, wide
                )
        else:  # statistics: own, as training has them: autograd

            def forward(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
                if group:
                    return torch.nn.functional.group_norm(x, 1, gamma, beta, epsilon)
                return torch.nn.functional.layer_norm(x, x.shape[1:], gamma, beta, epsilon)

            leaves = [tensor.detach().requires_grad_() for tensor in (x, gamma, beta)]
            y = self._maybe_compiled(forward, ("autograd", epsilon), *leaves)
            gradients = torch.autograd.grad(y, leaves, dy)
        return dict(zip(("dx", "dgamma", "dbeta"), gradients, strict=True))

    def _maybe_compiled(
        self, function: Callable[..., Any], key: tuple[Any, ...], *arguments: Tensor | None
    ) -> Any:
        """Call the function; the compiled variant compiles it once for each shape and format."""
        if self.setup.variant != "compiled":
            return function(*arguments)
        key = (
            *key,
            *((tuple(tensor.shape), tensor.dtype) for tensor in arguments if tensor is not None),
        )
        if key not in self._compiled:
            torch._dynamo.reset()
            self._compiled = {key: torch.compile(function, fullgraph=True, dynamic=False)}
        return self._compiled[key](*arguments)

    def _linear(self, n: int) -> Tensor:
        """Return weights (n, n) of unit variance, in bf16.

        They are the same for all versions of NumPy and torch.
        """
        if n * n > MAX_WEIGHTS:
            max_rows = math.isqrt(MAX_WEIGHTS)
            raise CannotServe(
                f"a linear on rows of {n} has {n * n} weights; at most {MAX_WEIGHTS}: "
                f"rows of up to {max_rows}"
            )
        if n not in self._weights:
            words = np.random.Philox(key=self.setup.linear or 0).random_raw(n * n)
            uniform = (words >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0
            values = torch.from_numpy((uniform * math.sqrt(3.0)).astype(np.float32).reshape(n, n))
            self._weights = {n: values.to(device=self.setup.device, dtype=torch.bfloat16)}
        return self._weights[n]


def _native_forward(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, group: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run ATen's kernels. With one group and a channel per feature, group norm is LayerNorm."""
    rows, n = x.shape
    if group:
        return torch.ops.aten.native_group_norm(x, gamma, beta, rows, n, 1, 1, epsilon)  # type: ignore[no-any-return]
    return torch.ops.aten.native_layer_norm(x, [n], gamma, beta, epsilon)  # type: ignore[no-any-return]


def _native_backward(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor, beta: Tensor, group: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows, n = x.shape
    mean, rstd = mean.reshape(rows, 1), rstd.reshape(rows, 1)
    if group:
        return torch.ops.aten.native_group_norm_backward(
            dy, x, mean, rstd, gamma, rows, n, 1, 1, ALL
        )  # type: ignore[no-any-return]
    return torch.ops.aten.native_layer_norm_backward(dy, x, [n], mean, rstd, gamma, beta, ALL)  # type: ignore[no-any-return]


def _decomposed_forward(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, group: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run torch._refs: var_mean and elementwise operations, one by one.

    The compiler starts from them.
    """
    rows, n = x.shape
    if group:
        return torch._refs.native_group_norm(x, gamma, beta, rows, n, 1, 1, epsilon)  # type: ignore[no-any-return]
    return torch._refs.native_layer_norm(x, [n], gamma, beta, epsilon)  # type: ignore[no-any-return]


def _decomposed_backward(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    gamma: Tensor,
    beta: Tensor,
    group: bool,
    wide: bool,
) -> tuple[Tensor, ...]:
    """Run torch's decompositions of the backward kernels.

    `wide`: widened to fp32 first (the compiler fuses them so) and rounded once. Otherwise the steps
    run one by one: LayerNorm's rounds rstd / N to 16 bits, and group norm's rounds every
    intermediate. The factor of a whole row is then off by up to 2^-8, which GoNoGo does not accept
    as the rounding of a right kernel.
    """
    rows, n = x.shape
    mean, rstd = mean.reshape(rows, 1), rstd.reshape(rows, 1)
    dtypes = (x.dtype, gamma.dtype, beta.dtype)
    dy, x, mean, rstd, gamma, beta = (
        tensor.to(torch.float32) if wide else tensor for tensor in (dy, x, mean, rstd, gamma, beta)
    )
    if group:
        gradients = torch._decomp.decompositions.native_group_norm_backward(
            dy, x, mean, rstd, gamma, rows, n, 1, 1, ALL
        )
    else:
        gradients = torch._decomp.decompositions.native_layer_norm_backward(
            dy, x, [n], mean, rstd, gamma, beta, ALL
        )
    return tuple(gradient.to(dtype) for gradient, dtype in zip(gradients, dtypes, strict=True))


def _rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> dict[str, Tensor]:
    """Run the operation beneath torch.nn.functional.rms_norm, which also returns rstd."""
    y, rstd = torch.ops.aten._fused_rms_norm(x, [x.shape[1]], gamma, epsilon)
    return {"y": y, "rstd": rstd}


def _decomposed_rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> dict[str, Tensor]:
    """Run the decomposition from which the compiler starts: fp32 inside, one rounding."""
    y, rstd = torch._decomp.decomposition_table[torch.ops.aten._fused_rms_norm.default](
        x, [x.shape[1]], gamma, epsilon
    )
    return {"y": y, "rstd": rstd}


def _decomposed_rms_backward(
    dy: Tensor, x: Tensor, rstd: Tensor, gamma: Tensor
) -> tuple[Tensor, ...]:
    """Run the decomposition from which the compiler starts: fp32 inside, one rounding."""
    decomposition = torch._decomp.decomposition_table[
        torch.ops.aten._fused_rms_norm_backward.default
    ]
    gradients = decomposition(dy, x, [x.shape[1]], rstd.to(torch.float32), gamma, [True, True])
    return tuple(gradients)


def _check_gradient(t: Mapping[str, Tensor]) -> None:
    """Raise CannotServe where dy hasn't the format of x, which torch requires."""
    x, dy = t["x"], t["dy"]
    if dy.dtype is not x.dtype:
        raise CannotServe(
            f"numerics.input: torch takes dy in the format of x, {_format_of(x)}, "
            f"not in {_format_of(dy)}"
        )


def _group_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, groups: int
) -> dict[str, Tensor]:
    """Run ATen's kernel beneath torch.nn.functional.group_norm.

    x: (samples, channels, elements).
    """
    outputs = torch.ops.aten.native_group_norm(
        x.contiguous(), gamma, beta, *x.shape, groups, epsilon
    )
    return dict(zip(("y", "mean", "rstd"), outputs, strict=True))


def _decomposed_group_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, groups: int
) -> dict[str, Tensor]:
    """Run torch._refs: var_mean and elementwise operations."""
    outputs = torch._refs.native_group_norm(x.contiguous(), gamma, beta, *x.shape, groups, epsilon)
    return dict(zip(("y", "mean", "rstd"), outputs, strict=True))


def _format_of(tensor: Tensor) -> str:
    return next(name for name, dtype in FORMATS.items() if dtype is tensor.dtype)


def _array(tensor: Tensor, shape: tuple[int, ...]) -> Array:
    """Return a new float32 array with the tensor's values."""
    return np.array(
        tensor.detach().to(device="cpu", dtype=torch.float32).numpy().reshape(shape), order="C"
    )

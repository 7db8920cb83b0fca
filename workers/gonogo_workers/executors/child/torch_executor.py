"""PyTorch's LayerNorm, RMSNorm and group norm as an executor, on CPU or GPU.

They run eager, decomposed or compiled. The executor runs in the build's interpreter, so it imports
nothing of GoNoGo: only the standard library, NumPy and torch. A build is a name in its row of
`gonogo.spec.executors`, or any name to which the host's builds file gives options:
{"variant": "eager", "norm": "group", "device": "cuda", "linear": {"seed": 0}, "threads": 4}.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch_kernels import (
    decomposed_backward,
    decomposed_forward,
    decomposed_group_norm,
    decomposed_rms_backward,
    decomposed_rms_norm,
    group_norm,
    native_backward,
    native_forward,
    rms_norm,
)
from torch_setup import Setup, torch
from torch_tensors import Array, CannotServe, Tensor, array, check, check_gradient, tensor

KERNELS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")
MAX_WEIGHTS = 2**26
"""The largest downstream linear, N x N: 128 MiB in bf16."""


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
        self.kernel_s: float | None = None
        """The seconds of the last kernel, without moving its tensors."""
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
        kernel = test["kernel"]
        if kernel not in KERNELS:
            raise CannotServe(f"kernel: torch knows {', '.join(KERNELS)} here, not {kernel}")
        shape, epsilon = tuple(test["shape"]), float(test.get("epsilon", 1e-6))
        tensors = {
            name: tensor(test, name, values, self.setup.device) for name, values in inputs.items()
        }
        check(test, tensors)
        began = self._now()
        shapes = {"mean": shape[:-1], "rstd": shape[:-1], "dgamma": shape[-1:], "dbeta": shape[-1:]}
        if kernel == "layernorm_fw":
            outputs = self._forward(tensors, epsilon)
        elif kernel == "layernorm_bw":
            outputs = self._backward(tensors, epsilon)
        elif kernel == "rmsnorm_fw":
            outputs = self._plain(rms_norm, decomposed_rms_norm, tensors, epsilon)
        elif kernel == "rmsnorm_bw":
            outputs = self._rms_backward(tensors, epsilon)
        else:
            groups = int(test.get("parameters", {}).get("num_groups", 1))
            shapes = dict.fromkeys(("mean", "rstd"), (shape[0], groups))
            samples = {**tensors, "x": tensors["x"].reshape(shape[0], shape[1], -1)}
            outputs = self._plain(group_norm, decomposed_group_norm, samples, epsilon, groups)
        self.kernel_s = self._now() - began
        return {name: array(value, shapes.get(name, shape)) for name, value in outputs.items()}

    def _now(self) -> float:
        """Return the time at which the device has done everything that it was given."""
        if self.setup.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

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
        check_gradient(t)
        x, gamma, dy = t["x"], t["gamma"], t["dy"]
        if self.setup.variant == "decomposed":
            with torch.no_grad():
                rstd = t["rstd"] if "rstd" in t else decomposed_rms_norm(x, gamma, epsilon)["rstd"]
                gradients = decomposed_rms_backward(dy, x, rstd.reshape(-1, 1), gamma)
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

    def _forward(self, t: Mapping[str, Tensor], epsilon: float) -> dict[str, Tensor]:
        x, gamma, beta = t["x"], t["gamma"], t["beta"]
        weights = None if self.setup.linear is None else self._linear(x.shape[1])
        group = self.setup.norm == "group"

        def norm(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            if self.setup.variant == "decomposed":
                return decomposed_forward(x, gamma, beta, epsilon, group)
            return native_forward(x, gamma, beta, epsilon, group)

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
        check_gradient(t)
        x, gamma, dy = t["x"], t["gamma"], t["dy"]
        group = self.setup.norm == "group"
        beta = torch.zeros_like(gamma)
        decomposed, wide = self.setup.variant == "decomposed", not self.setup.narrow
        if "mean" in t:  # statistics: given

            def backward(
                dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor, beta: Tensor
            ) -> tuple[Tensor, ...]:
                if decomposed:
                    return decomposed_backward(dy, x, mean, rstd, gamma, beta, group, wide)
                return native_backward(dy, x, mean, rstd, gamma, beta, group)

            with torch.no_grad():
                gradients = self._maybe_compiled(
                    backward, ("backward",), dy, x, t["mean"], t["rstd"], gamma, beta
                )
        elif decomposed:
            with torch.no_grad():
                _, mean, rstd = decomposed_forward(x, gamma, beta, epsilon, group)
                gradients = decomposed_backward(
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

"""Programs of known implementations: NumPy runs the references as these would, in 16 bits."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Program
from gonogo.arithmetic.formats import round_to
from gonogo.graph import trace
from gonogo.judgment import judge
from gonogo.kernels.registry import KERNELS
from gonogo.spec.verdicts import Explanation

F = np.float32
SHAPES = {"x": (16, 64), "gamma": (64,), "beta": (64,), "dy": (16, 64)}
SHAPES |= {"mean": (16, 1), "rstd": (16, 1)}
PARAMETERS = {"epsilon": 1e-5, "num_groups": 4}
NORMS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw", "batchnorm_fw")


class Eager(np.ndarray):
    """Float32 values whose operations' results are bf16, as those of a framework's tensors."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        plain = [np.asarray(a, F) for a in args]
        result = getattr(ufunc, method)(*plain, **options)
        # rsqrt is one operation: what 1 is divided by isn't stored
        return (result if ufunc is np.sqrt else bf16(result)).view(Eager)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        first, *others = args
        return bf16(function(np.asarray(first), *others, **options)).view(Eager)


def bf16(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(round_to(np.asarray(values, np.float64), "bf16"), F)


@pytest.mark.parametrize("name", [*NORMS, "l2norm", "softmax"])
def test_a_framework_that_stores_each_result_is_the_eager_program(name: str) -> None:
    kernel = KERNELS[name]
    names = inspect.signature(kernel.reference).parameters
    random = np.random.default_rng(3)
    is_image = name in ("groupnorm_fw", "batchnorm_fw")
    shapes = SHAPES | ({"x": (8, 64, 6)} if is_image else {})
    inputs = {at: bf16(1 + random.normal(size=shapes[at])) for at in names if at in shapes}
    parameters = {at: value for at, value in PARAMETERS.items() if at in names}
    with np.errstate(all="raise"):
        outputs = kernel.reference(
            **{at: values.view(Eager) for at, values in inputs.items()}, **parameters
        )
    given = {at: bf16(values) for at, values in outputs.items()}
    graph = trace(kernel.reference, inputs, **parameters)

    def is_explained_by(program: str) -> bool:
        programs = [kernel.programs[program](graph, "bf16")]
        answer = judge([graph], inputs, given, dict.fromkeys(given, "bf16"), ["bf16"], programs)
        return answer.explanation is Explanation.explained

    assert is_explained_by("eager")
    assert not is_explained_by("fused")


def test_an_rmsnorm_that_stores_its_normalized_values() -> None:
    random = np.random.default_rng(4)
    x, gamma = bf16(random.normal(size=(16, 64))), bf16(random.normal(size=64))
    xhat = x / np.sqrt((x * x).mean(-1, keepdims=True) + F(1e-5))
    kernel, inputs = KERNELS["rmsnorm_fw"], {"x": x, "gamma": gamma}
    graph = trace(kernel.reference, inputs, epsilon=1e-5)
    judged_by = partial(
        judge, [graph], inputs, {"y": bf16(bf16(xhat) * gamma)}, {"y": "bf16"}, ["bf16"]
    )
    program = kernel.programs["stored-xhat"](graph, "bf16")
    assert judged_by([program]).explanation is Explanation.explained
    assert judged_by([Program()]).explanation is Explanation.unexplained

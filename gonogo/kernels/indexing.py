"""Elements taken from elsewhere: rows of a table, and the largest values."""

from __future__ import annotations

from functools import partial

import numpy as np

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape


def embedding(indices: Array, table: Array) -> Outputs:
    """Return the table's rows at indices: (..., width)."""
    y = table[indices]
    return {"y": y}


def topk(x: Array, k: int) -> Outputs:
    """Return the k largest values along the last axis, the largest first."""
    rising = np.sort(x, axis=-1)
    y = rising[..., ::-1][..., :k]
    return {"y": y}


def _smallest(x: Array, k: int) -> Outputs:
    """The smallest values are taken."""
    y = np.sort(x, axis=-1)[..., :k]
    return {"y": y}


def _rising(x: Array, k: int) -> Outputs:
    """The smallest of the k values comes first."""
    y = np.sort(x, axis=-1)[..., x.shape[-1] - k :]
    return {"y": y}


def _embedding_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    width = parameters["width"]
    return {"indices": shape, "table": (parameters["rows"], width), "y": (*shape, width)}


def _rows(shape: Shape, parameters: Parameters) -> int:
    rows: int = parameters["rows"]
    return rows


def _topk_shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    k = parameters["k"]
    if k > shape[-1]:
        limit = f"<= {shape[-1]}, the last dimension"
        raise FieldError("parameters.k", k, "is too large", limit=limit)
    return {"x": shape, "y": (*shape[:-1], k)}


_count = partial(fields.integer, least=1)
KERNELS = (
    Kernel(
        "embedding",
        embedding,
        ("y",),
        _embedding_shapes,
        parameters={
            "rows": Parameter(_count, 1000, "rows of the table"),
            "width": Parameter(_count, 128, "columns of the table"),
        },
        whole={"indices": _rows},
        example=(8, 32),
    ),
    Kernel(
        "topk",
        topk,
        ("y",),
        _topk_shapes,
        parameters={"k": Parameter(_count, 8, "values to take")},
        mistakes={"smallest": _smallest, "rising": _rising},
    ),
)

"""Tests with exact inputs."""

from __future__ import annotations

from typing import Any

from gonogo.spec.test_spec import TestSpec


def exact_test(kernel: str, *shape: int, fmt: str = "bf16", **fields: Any) -> TestSpec:
    """Return a test with exact inputs, in one format."""
    numerics = {"input": fmt, "output": fmt, "buffers": fmt} | fields.pop("numerics", {})
    data = {"kernel": kernel, "shape": list(shape), "inputs": {"regime": "exact"}}
    return TestSpec.parse(data | {"numerics": numerics} | fields)

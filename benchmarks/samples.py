"""Whether a benchmark's figures are in-sample: said by each of them, also when it runs alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Sample(StrEnum):
    """Whether anything was chosen on the cases that a benchmark measures."""

    inside = "in-sample"
    outside = "out-of-sample"
    both = "in-sample and out-of-sample: each table says which"
    timing = "a measurement of time or size: no verdict depends on it"


SAMPLES: Final = {
    "figures": Sample.inside,
    "flakiness": Sample.both,
    "bisection": Sample.both,
    "gauges": Sample.outside,
    "torch_builds": Sample.inside,
}
"""Kernels that a limit of the verdicts was mended for count as in-sample, also where those who
wrote them had not seen it. The gates of `gauges` are others', and nothing was chosen on them. The
benchmarks that aren't named here are timings."""


def sample_of(name: str) -> Sample:
    """Return whether anything was chosen on the cases of a benchmark."""
    return SAMPLES.get(name, Sample.timing)


def sentence(name: str) -> str:
    """Return the line that a benchmark prints above its figures."""
    return f"{name}: {sample_of(name)}"

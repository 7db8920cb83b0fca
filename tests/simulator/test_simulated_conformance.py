"""The conformance suite of executors, passed by the real ttnn kernels on the simulated Wormhole."""

from __future__ import annotations

import pytest

from gonogo_workers.executors.conformance import checks
from simulated_wormhole import Child

pytestmark = pytest.mark.slow

SUITES = (
    ("ttnn", "layernorm_fw", ("y",), ((7,),)),
    ("ttnn", "add", ("y",), ((2, 3, 40),)),
    ("ttnn-generic-bw", "layernorm_bw", ("dx",), ((1, 1, 32, 64),)),
)


@pytest.mark.parametrize(
    ("build", "kernel", "produced", "shapes"),
    SUITES,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_conforms(
    child: Child,
    build: str,
    kernel: str,
    produced: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
) -> None:
    suite = checks(
        child.executor,
        build,
        kernels=[kernel],
        shapes=shapes,
        produced=produced,
        own_statistics=False,
    )
    broken = []
    for check in suite:
        try:
            check()
        except AssertionError as problem:
            broken.append(f"{check}: {problem}")
    assert not broken, "\n".join(broken)
    assert len(suite) > 4

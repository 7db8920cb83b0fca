"""The conformance suite of executors, passed by a real ttnn kernel on the simulated Wormhole."""

from __future__ import annotations

from gonogo_workers.executors.conformance import checks
from simulated_wormhole import Child


def test_it_conforms(child: Child) -> None:
    suite = checks(
        child.executor,
        "ttnn",
        kernels=["add"],
        shapes=((2, 3, 40),),
        produced=("y",),
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

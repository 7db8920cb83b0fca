"""Real ttnn kernels are replayed to the bit by their programs, and wrong ones aren't explained."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gonogo.spec.verdicts import Explanation
from gonogo_workers.executors import builds_file, registry
from ttnn_cases import GROUPS, RIGHT, Case

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "ttnn_operations.py"
WRONG = [
    Case("ttnn.layer_norm", "fp32", wrong={"epsilon": 1e-3}),
    Case("ttnn.layer_norm", "bf16", wrong={"factor": 1.02}),
    Case("ttnn.rms_norm", "bf16", wrong={"epsilon": 1e-2}),
    Case("ttnn.group_norm", "fp32", GROUPS, wrong={"num_groups": 4}),
    Case("moreh.layer_norm_backward", "fp32", wrong={"factor": 0.98}),
]
"""Operations that are given something else than the test says."""
CASES = RIGHT + WRONG
Outputs = dict[str, Any]


@pytest.fixture(scope="module")
def produced(builds: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Outputs]:
    """Return the outputs of all cases; one process runs them, in order."""
    path = tmp_path_factory.mktemp("ttnn") / "tensors.npz"
    tensors = {
        f"{number}|{name}": array
        for number, case in enumerate(CASES)
        for name, array in case.inputs().items()
    }
    np.savez(path, allow_pickle=False, **tensors)
    build = builds_file.resolve_build(
        registry.built_in("ttnn"), "ttnn", builds_file.read(str(builds))
    )
    requests = json.dumps([case.request() for case in CASES])
    folder = build.executor.paths[0]
    command = [str(build.executor.python), str(PROGRAM), str(folder), requests, str(path)]
    environment = {**os.environ, **build.environment}
    subprocess.run(command, env=environment, cwd=path.parent, check=True, timeout=900)
    with np.load(path) as stored:
        flat = dict(stored)
    outputs: list[Outputs] = [{} for _ in CASES]
    for key, values in flat.items():
        number, _, name = key.partition("|")
        outputs[int(number)][name] = values
    return outputs


@pytest.mark.parametrize("number", range(len(RIGHT)), ids=[case.name for case in RIGHT])
def test_a_right_kernel_is_replayed_to_the_bit(number: int, produced: list[Outputs]) -> None:
    case, outputs = CASES[number], produced[number]
    for name, values in case.replayed(*outputs).items():
        assert np.array_equal(values, outputs[name])
    for answer in case.judged(outputs).outputs.values():
        assert answer.explanation is Explanation.explained


@pytest.mark.parametrize("number", range(len(RIGHT), len(CASES)), ids=[case.name for case in WRONG])
def test_a_wrong_one_is_not_explained(number: int, produced: list[Outputs]) -> None:
    answers = CASES[number].judged(produced[number]).outputs.values()
    assert Explanation.unexplained in [answer.explanation for answer in answers]

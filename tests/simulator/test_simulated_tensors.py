"""Tensors of the real ttnn in `gonogo.compare`: their values and formats, on the host and on the
(simulated) device."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from checkout import PYTHONPATH
from gonogo_workers.executors import builds_file, registry
from patience import scaled

ROOT = Path(__file__).parents[2]
CODE = """
import numpy as np, ttnn, gonogo
values = np.random.default_rng(0).standard_normal((1, 2, 33, 40)).astype("f4")
for kind in (ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b):
    tensor = ttnn.Tensor(values, kind).to(ttnn.TILE_LAYOUT)
    numbers = gonogo.compare(tensor, values, rtol=1e-2, atol=5e-2).outputs["actual"]
    texts = (numbers["dtype"], numbers["format"], numbers["count"])
    print("told", *texts, numbers["max_abs"] < 2.0**-5, numbers["tolerance_roundings"] > 1)
"""


def test_ttnn_s_tensors_are_read_with_their_formats(builds: Path) -> None:
    resolved = builds_file.resolve_build(
        registry.built_in("ttnn"), "ttnn", builds_file.read(str(builds))
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
    }
    child_environment = {**environment, **resolved.environment, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        [resolved.executor.python, "-c", CODE],
        env=child_environment,
        capture_output=True,
        text=True,
        timeout=scaled(100),
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("told")] == [
        "told DataType.BFLOAT16 bf16 2640 True True",
        "told DataType.FLOAT32 fp32 2640 True True",
        "told DataType.BFLOAT8_B bfp8_b 2640 True True",
    ], done.stderr[-3000:]

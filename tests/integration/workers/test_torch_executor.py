"""The torch executor in a real interpreter with torch: it conforms, right kernels pass, and errors
name what torch can't do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.spec.builds import own_builds
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors import registry
from gonogo_workers.executors.base import HostUnavailable, KernelError
from gonogo_workers.executors.builds_file import read, resolve_build
from gonogo_workers.local.child import Patience
from gonogo_workers.local.runner import LocalRunner
from torch_interpreter import builds_file, run_in_torch, torch_python

pytestmark = pytest.mark.slow

COMPILED = (2, 3, 40)
EAGER = ("torch-eager", "torch-decomposed", "torch-eager-group-norm", "torch-decomposed-group-norm")
FP32, FP16 = ({"input": name, "output": name} for name in ("fp32", "fp16"))
OWN_STATISTICS = {"statistics": "own"}
SHAPES = ([64, 128], [2, 5, 33], [7])
REGIMES: tuple[dict[str, Any], ...] = (
    {},
    {"regime": "offset", "offset": 10},
    {"regime": "ramp", "low": -1, "high": 2},
)


def runner(build: str, folder: Path, **tables: str) -> LocalRunner:
    resolved = resolve_build(registry.find("torch", ""), build, read(builds_file(folder, **tables)))
    return LocalRunner(resolved, build, patience=Patience(100), isolated=True)


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalRunner]]:
    """A runner per build. The first use starts it, and later uses share it."""

    class Started(dict[str, LocalRunner]):
        def __missing__(self, build: str) -> LocalRunner:
            self[build] = runner(build, folder)
            return self[build]

    folder = tmp_path_factory.mktemp("torch")
    started = Started()
    yield started
    for local_runner in started.values():
        local_runner.close(kill=True)  # torch takes half a second to leave by itself


def spec(kernel: str, shape: Sequence[int], numerics: dict[str, Any], **more: Any) -> TestSpec:
    fields = {"kernel": kernel, "shape": list(shape), "numerics": numerics, **more}
    return TestSpec.parse(fields)


def judged(runner: LocalRunner, test: TestSpec) -> SeedJudgement:
    raw = generate(test, 0)
    given = quantise(test, raw)
    outputs = runner.run(test, given, seed=0)
    known = {"arithmetic": runner.arithmetic, "produced": runner.produced}
    return judge(test, raw, given, outputs, **known)


def all_pass(runner: LocalRunner, norms: Sequence[dict[str, Any]], turn: int) -> None:
    """Judge each norm on inputs of another regime than its neighbors; another one each turn."""
    for place, norm in enumerate(norms):
        test = TestSpec.parse({**norm, "inputs": REGIMES[(place + turn) % len(REGIMES)]})
        judgement = judged(runner, test)
        assert judgement.verdict == "pass", (test.canonical(), judgement.to_json())


CONFORMANCE = """
from gonogo_workers.executors.conformance import checks
from torch_executor import TorchExecutor
for build in {builds}:
    for check in checks(TorchExecutor, build, shapes={shapes}):
        check()
        print(build, check)
"""


def test_eager_and_decomposed_builds_conform() -> None:
    builds, shapes = (*EAGER, "torch-eager-linear"), ((1, 1, 32, 64), (2, 3, 40), (1, 33), (7,))
    output = run_in_torch(CONFORMANCE.format(builds=builds, shapes=shapes))
    assert output.count("the same inputs give the same bits") == 5 * 9


def test_compiled_builds_conform() -> None:
    """With one shape of whole vectors and a rest: each shape is two seconds of a compiler."""
    builds = ("torch-compiled", "torch-compiled-group-norm")
    output = run_in_torch(CONFORMANCE.format(builds=builds, shapes=(COMPILED,)))
    assert output.count("it is a LayerNorm") == 2 * 3


MIXED = {"input": dict.fromkeys(("gamma", "mean", "rstd"), "fp32")}
LAYERNORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("layernorm_fw", numerics) for numerics in ({}, FP32, FP16)),
    *(
        ("layernorm_bw", numerics)
        for numerics in ({}, OWN_STATISTICS, FP32, FP32 | OWN_STATISTICS, FP16, MIXED)
    ),
    ("layernorm_fw", {"input": {"gamma": "fp32", "beta": "fp32"}}),
)


@pytest.mark.parametrize("build", EAGER)
def test_right_kernels_pass_and_are_explained(runners: dict[str, LocalRunner], build: str) -> None:
    for turn, (kernel, numerics) in enumerate(LAYERNORMS):
        if numerics is MIXED and build == "torch-eager-group-norm":
            continue  # ATen's CPU group norm takes its backward's parameters in x's format only
        norm = {"kernel": kernel, "numerics": numerics}
        all_pass(runners[build], [{**norm, "shape": shape} for shape in SHAPES], turn)


NORMS: tuple[dict[str, Any], ...] = (
    {"kernel": "rmsnorm_fw", "shape": [64, 128]},
    {"kernel": "rmsnorm_fw", "shape": [7]},
    {"kernel": "rmsnorm_fw", "shape": [2, 3, 1000]},
    {"kernel": "groupnorm_fw", "shape": [4, 32, 8, 8], "parameters": {"num_groups": 8}},
    {"kernel": "groupnorm_fw", "shape": [2, 6, 5], "parameters": {"num_groups": 3}},
    {"kernel": "groupnorm_fw", "shape": [3, 4]},
    {"kernel": "rmsnorm_bw", "shape": [64, 128], "numerics": OWN_STATISTICS},
    {"kernel": "rmsnorm_bw", "shape": [7], "numerics": OWN_STATISTICS},
    {"kernel": "rmsnorm_bw", "shape": [2, 3, 1000], "numerics": OWN_STATISTICS},
    {"kernel": "rmsnorm_bw", "shape": [40, 33], "numerics": OWN_STATISTICS},
)


@pytest.mark.parametrize("build", ["torch-eager", "torch-decomposed"])
def test_rms_norm_and_group_norm_pass_and_are_explained(
    runners: dict[str, LocalRunner], build: str
) -> None:
    for turn, numerics in enumerate(({}, FP32, FP16)):
        norms = [{**norm, "numerics": numerics | norm.get("numerics", {})} for norm in NORMS]
        all_pass(runners[build], norms, turn)


def test_a_build_that_does_not_have_a_norm_names_the_one_that_does(
    runners: dict[str, LocalRunner],
) -> None:
    given = spec("rmsnorm_bw", [64, 128], {})
    assert judged(runners["torch-decomposed"], given).verdict == "pass"
    forward = TestSpec.parse(NORMS[0])
    for build, test, message in (
        ("torch-eager", given, "torch-decomposed takes a given one"),
        ("torch-eager-linear", given, "is a LayerNorm in another way"),
        ("torch-eager-linear", forward, "is a LayerNorm in another way"),
    ):
        with pytest.raises(KernelError, match=message):
            judged(runners[build], test)


def test_torch_s_functions_are_what_the_kernels_are() -> None:
    """The outputs equal those of torch.nn.functional, bit for bit."""
    output = run_in_torch("""
import numpy as np, torch
from torch_executor import TorchExecutor
executor = TorchExecutor("torch-eager")
rng = np.random.default_rng(0)
shapes = ((4, 6, 5), (6,), (6,))
x, gamma, beta = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
tx, tgamma, tbeta = torch.tensor(x), torch.tensor(gamma), torch.tensor(beta)
test = {"shape": [4, 6, 5], "numerics": {"input": "fp32", "output": "fp32"}}
group_norm = {"kernel": "groupnorm_fw", "parameters": {"num_groups": 3}, "epsilon": 1e-5}
y = executor.run({**test, **group_norm}, {"x": x, "gamma": gamma, "beta": beta})["y"]
expected = torch.nn.functional.group_norm(tx, 3, tgamma, tbeta, 1e-5)
print((y == expected.numpy()).all())
y = executor.run({**test, "kernel": "rmsnorm_fw"}, {"x": x, "gamma": gamma[:5]})["y"]
print((y == torch.nn.functional.rms_norm(tx, (5,), tgamma[:5], 1e-6).numpy()).all())
""")
    assert output.split() == ["True", "True"]


def test_a_compiled_kernel_passes_and_is_explained(runners: dict[str, LocalRunner]) -> None:
    for kernel, numerics in (
        ("layernorm_fw", {}),
        ("layernorm_bw", {}),
        ("layernorm_bw", FP32 | OWN_STATISTICS),
    ):
        assert judged(runners["torch-compiled"], spec(kernel, COMPILED, numerics)).verdict == "pass"


def test_a_16_bit_running_column_sum_is_found_and_not_explained_where_nothing_is_stored(
    runners: dict[str, LocalRunner],
) -> None:
    test = spec("layernorm_bw", (512, 64), {})
    raw = generate(test, 0)
    given = quantise(test, raw)
    outputs = runners["torch-eager"].run(test, given)
    assert judge(test, raw, given, outputs, arithmetic=None).explanation == "explained"
    by_other = judge(test, raw, given, outputs, arithmetic="fused").outputs
    assert by_other["dx"].explanation == "explained"
    assert by_other["dgamma"].explanation == by_other["dbeta"].explanation == "unexplained"


def test_the_decomposition_as_it_is_rounds_a_factor_of_each_row_and_is_found_out(
    tmp_path: Path,
) -> None:
    # it declares that it stores nothing; else what it stores could be found
    narrow = 'arithmetic = "fused"\noptions = { variant = "decomposed", narrow = true }'
    test = spec("layernorm_bw", (40, 1000), {})  # rstd / 1024 would be exact
    with runner("as-it-is", tmp_path, **{"as-it-is": narrow}) as narrowed:
        dx = judged(narrowed, test).outputs["dx"]
    assert dx.explanation == "unexplained"
    assert dx.statistics["distance"] > 16
    assert dx.statistics["max_abs"] < 0.05


@pytest.mark.parametrize(
    ("numerics", "message"),
    [
        ({"input": "bfp8_b"}, "input: torch has no bfp8_b"),
        (
            {"output": "fp32"},
            "output: torch gives its result in the format of x, bf16, not in fp32",
        ),
        ({"accumulate": "bf16"}, "accumulate: torch has fp32 only"),
        ({"fidelity": "lofi"}, "fidelity"),
        ({"input": {"dy": "fp32"}}, "input: torch takes dy in the format of x"),
    ],
)
def test_what_torch_cannot_do_is_an_error_that_says_so(
    runners: dict[str, LocalRunner], numerics: dict[str, Any], message: str
) -> None:
    with pytest.raises(KernelError, match=f"numerics.{message}"):
        judged(runners["torch-eager"], spec("layernorm_bw", [4, 64], numerics))


REFUSED: tuple[tuple[str, dict[str, Any] | None, str], ...] = (
    ("torch-lazy", None, "unknown build 'torch-lazy'"),
    ("mine", {"variant": "eager", "speed": 2}, "unknown option 'speed'"),
    ("mine", {"variant": "eager", "threads": 0}, "option threads is 0"),
    ("mine", {"variant": "compiled"}, "needs a C++ compiler"),
)


OPENS = f"""
import json, os
from torch_executor import TorchExecutor
os.environ["CXX"] = "no-such-compiler"
for build, options, _ in {REFUSED}:
    os.environ["GONOGO_BUILD"] = json.dumps({{"name": build, "options": options or {{}}}})
    try:
        TorchExecutor(build)
    except (RuntimeError, ValueError) as problem:
        print(problem)
    else:
        print("opened", build, options)
"""


def test_builds_that_cannot_be_are_refused(tmp_path: Path) -> None:
    lines = run_in_torch(OPENS).splitlines()
    for line, (*_, message) in zip(lines, REFUSED, strict=True):
        assert message in line
    with pytest.raises((FieldError, KernelError), match="option variant is 'lazy'"):
        runner("mine", tmp_path, mine='options = { variant = "lazy" }')


def test_a_gpu_build_without_a_gpu_says_so(tmp_path: Path) -> None:
    refused = ""
    try:
        runner("torch-cuda-eager", tmp_path).close()
    except KernelError as problem:
        refused = str(problem)
    if not refused:
        pytest.skip("there is a GPU here")
    assert "needs a GPU" in refused


def test_every_known_name_is_one_that_the_executor_knows() -> None:
    code = (
        f"from torch_executor import Setup\n"
        f"for name in {tuple(own_builds('torch'))}: print(name, Setup.of(name, {{}}).norm)"
    )
    words = run_in_torch(code).split()
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        name: "group" if "group" in name else "layer" for name in own_builds("torch")
    }


def test_an_interpreter_without_torch_is_told_which_line_to_write(tmp_path: Path) -> None:
    if sys.executable == torch_python():
        pytest.skip("our own interpreter has torch")
    path = tmp_path / "builds.toml"
    path.write_text(f'[executors.torch]\npython = "{sys.executable}"\n')
    resolved = resolve_build(registry.find("torch", ""), "torch-eager", read(str(path)))
    with pytest.raises(HostUnavailable, match=r"has no torch .*\[executors.torch\]"):
        LocalRunner(resolved, "torch-eager", patience=Patience(20), isolated=True)

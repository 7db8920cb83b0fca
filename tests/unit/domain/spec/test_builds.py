"""Builds: their order, what they promise, and what is refused."""

from __future__ import annotations

import pytest

from gonogo.emulator import builds_of
from gonogo.errors import FieldError
from gonogo.kernels.registry import KERNELS
from gonogo.spec.builds import EMULATOR, Build, DeclaredBuild, check_kernel, known_build, own_builds


def test_builds_are_ordered_by_line_and_sequence() -> None:
    given = [("c", "main", 10), ("b", "main", 9), ("a", "release", 1), ("d", "main", 2)]
    builds = [Build(name, "ttnn", line, sequence) for name, line, sequence in given]
    in_order = sorted(builds, key=lambda build: build.order)
    assert [build.name for build in in_order] == ["d", "b", "c", "a"]


def test_a_build_produces_all_outputs_unless_it_says_which() -> None:
    declared = {"executor": "torch", "outputs": ["dx", "dbeta", "dx"], "arithmetic": " tt-train "}
    build = DeclaredBuild.parse(declared).named("x")
    assert build == Build("x", "torch", outputs=("dbeta", "dx"), arithmetic="tt-train")
    assert (build.produces("dx"), build.produces("dgamma")) == (True, False)
    assert Build("x", "ttnn").produces("dgamma")


def test_torch_s_builds_declare_no_arithmetic_and_few_outputs_where_they_add_a_layer() -> None:
    builds = own_builds("torch")
    assert {build.arithmetic for build in builds.values()} == {None}
    few = {name for name, build in builds.items() if build.outputs}
    assert few == {name for name in builds if "linear" in name}


def test_an_unknown_arithmetic_is_named_with_those_there_are() -> None:
    words = r"did you mean 'tt-train'\? .*one of tt-train, ttnn, worm"
    with pytest.raises(FieldError, match=words):
        DeclaredBuild.parse({"executor": "ttnn", "arithmetic": "tt_train"})


def test_each_named_defect_is_a_build_of_the_emulator() -> None:
    builds = own_builds(EMULATOR)
    assert next(iter(builds)) == "correct"
    named = "last-two-tiles double-subtract last-block-only tt-train-2025 drop-s1 bf16-accumulate"
    assert set(named.split()) <= set(builds)
    assert {build.arithmetic for build in builds.values()} == {"tt-train"}
    assert sorted(builds.values(), key=lambda build: build.order) == list(builds.values())


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw"])
def test_a_kernel_s_builds_are_those_whose_fault_changes_it(kernel: str) -> None:
    releases = {"tt-train-2025"}  # no mutant
    changing = tuple(
        name
        for name, build in builds_of(kernel).items()
        if build.is_wrong or not build.outputs or build.fate or name in releases
    )
    assert (*KERNELS[kernel].emulated_builds, *KERNELS[kernel].public_bugs) == changing


def test_every_kernel_takes_its_builds() -> None:
    for name, kernel in KERNELS.items():
        for build_name in kernel.emulated_builds:
            check_kernel(own_builds(EMULATOR)[build_name], name)
    for executor, build_name in (("torch", "torch-eager"), ("ttnn", "ttnn")):
        build = known_build(build_name, executor)
        assert build is not None
        check_kernel(build, "layernorm_bw")

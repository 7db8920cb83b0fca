"""`gonogo kernels`: the kernels that can be tested, and their emulated builds. Needs no server."""

from __future__ import annotations

import shlex
from typing import Any

import typer

from gonogo.cli.kit import cells, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.groups import group
from gonogo.spec.executors import EMULATOR

app = group()


@app.command("list")
def list_(as_json: bool = JSON) -> None:
    """List the kernels, and name those of installed packages, which are not imported here."""
    from gonogo.kernels import installed
    from gonogo.kernels.registry import KERNELS

    items = [_summary(name) for name in KERNELS]
    others = [name for name in installed.names() if name not in KERNELS]
    if as_json:
        show.print_json({"items": items, "next": None, "installed": others})
    else:
        columns = ("kernel", "inputs", "outputs", "parameters", "builds")
        show.console().print(cells.table(items, {name: name for name in columns}))
        for name in others:
            words = f"{name}: of an installed package; see gonogo kernels show {name}"
            show.console().print(words, markup=False, highlight=False, soft_wrap=True)


@app.command("show")
def show_one(
    kernel: str = typer.Argument(help="Its name, such as layernorm_bw, or a Python file."),
    as_json: bool = JSON,
) -> None:
    """Show a kernel: its tensors, its parameters, and a sentence for each emulated build."""
    from gonogo import fields
    from gonogo.kernels.registry import KERNELS, allow_installed, nameable, named
    from gonogo.spec.test_spec import TestSpec
    from gonogo.workloads import fault_names

    allow_installed()
    given, kernel = shlex.quote(kernel), named(kernel)
    if kernel not in KERNELS:
        fields.choice(kernel, [name for name in nameable() if name != kernel], "kernel")
    parameters = [
        {"name": name, "default": parameter.default, "meaning": parameter.sentence}
        for name, parameter in KERNELS[kernel].parameters.items()
    ]
    builds = [{"build": name, "what it does": words} for name, words in _builds(kernel).items()]
    usual = list(KERNELS[kernel].example)
    faults = fault_names(TestSpec.parse({"kernel": kernel, "shape": usual}))
    record = {**_summary(kernel), "parameters": parameters, "builds": builds, "faults": faults}
    if as_json:
        show.print_json(record)
        return
    out = show.console()
    cells.print_fields(out, {name: record[name] for name in ("kernel", "inputs", "outputs")})
    for name in ("parameters", "builds"):
        if record[name]:
            out.print(f"\n{name}", style="bold")
            out.print(cells.table(record[name], {column: column for column in record[name][0]}))
    other, shape = next(iter(faults)), ",".join(map(str, usual))
    words = f"\nBesides, each fault of its reference is a build, such as {other} (--json: all)."
    out.print(words, markup=False, soft_wrap=True)
    command = f"\ngonogo check --kernel {given} --shape {shape} --build NAME"
    out.print(command, style="dim", soft_wrap=True)


def _summary(kernel: str) -> dict[str, Any]:
    from gonogo.kernels.registry import KERNELS

    known = KERNELS[kernel]
    return {
        "kernel": kernel,
        "inputs": list(known.drawn),
        "outputs": list(known.outputs),
        "parameters": list(known.parameters),
        "builds": len(known.emulated_builds),
        "executor": EMULATOR,
    }


def _builds(kernel: str) -> dict[str, str]:
    """Return a sentence for each emulated build of a kernel."""
    from gonogo.emulator import builds_of
    from gonogo.kernels.registry import KERNELS

    builds, known = builds_of(kernel), KERNELS[kernel]
    return {name: builds[name].sentence for name in (*known.emulated_builds, *known.public_bugs)}

"""`gonogo judge`: judge stored .npy tensors, whoever made them, against a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gonogo import fields
from gonogo.cli.kit.fail_on import FAIL_ON, FailOn
from gonogo.errors import FieldError, JobError
from gonogo.spec import json_text
from gonogo_workers.cli import options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gonogo.spec.test_spec import TestSpec

    Tensors = dict[str, NDArray[Any]]


def judge(
    spec: Path = typer.Argument(help="JSON file with the test, or with a job that holds one."),
    tensors: list[str] = typer.Argument(
        help="x.npy gamma.npy ... dx.npy: inputs and outputs, named by the file or as NAME=path."
    ),
    raw: list[str] = typer.Option(
        [],
        "--raw",
        help="NAME=path of an unquantised input, which tolerances compare with; repeatable.",
    ),
    quantise: bool = typer.Option(
        False,
        "--quantise",
        help="The inputs are unquantised: round them to the test's input formats first.",
    ),
    arithmetic: str | None = typer.Option(
        None,
        help="The arithmetic that the kernel declares, such as tt-train (default: the build's, else"
        " the one that explains the outputs is found).",
    ),
    fail_on: FailOn = FAIL_ON,
    as_json: bool = options.JSON,
) -> None:
    """Judge stored .npy tensors against a test.

    The inputs are what the device was given: values that the test's input formats can represent
    (else --quantise). Outputs may be any of the kernel's. Without --raw and --quantise the given
    inputs are also those that tolerances compare with.
    """
    import gonogo.settings
    from gonogo.judging.judging import judge as judged
    from gonogo.judging.stored_tensors import given_inputs
    from gonogo.kernels.registry import allow_installed
    from gonogo.spec.arithmetic_names import canonical
    from gonogo.spec.test_spec import TestSpec

    allow_installed()
    data = _document(spec)
    job = data if isinstance(data, dict) and "test" in data else {"test": data}
    test = TestSpec.parse(job["test"], max_elements=gonogo.settings.load().max_elements)
    arithmetic = canonical(arithmetic, "arithmetic") if arithmetic is not None else _arithmetic(job)

    loaded = _load(test, tensors, (*test.input_names, *test.outputs))
    inputs = {name: loaded[name] for name in test.input_names if name in loaded}
    outputs = {name: loaded[name] for name in test.outputs if name in loaded}
    if not outputs:
        raise JobError(f"there is no output to judge: give some of {', '.join(test.outputs)}")
    if quantise and raw:
        raise JobError(
            "--quantise rounds the inputs, and --raw names unrounded ones: give one of the two"
        )
    for place in raw:
        if "=" not in place:
            raise FieldError("--raw", place, "must be NAME=path")
    loose = inputs if quantise else _load(test, raw, test.input_names)
    unquantised, given = given_inputs(test, {} if quantise else inputs, loose)
    result = judged(
        test, unquantised, given, outputs, arithmetic=arithmetic, produced=tuple(outputs)
    )
    row: options.Row = {
        "seed": None,
        "repeat": 0,
        "device": None,
        "host_run": None,
        "position": None,
        "duration_ms": None,
        **result.to_json(),
    }
    shape = "x".join(map(str, test.shape))
    title = f"{test.kernel} {shape}, stored tensors, arithmetic: {result.arithmetic}"
    options.finish(options.summary([row]), test, title, as_json=as_json, fail_on=fail_on)


def _document(path: Path) -> Any:
    try:
        return json_text.loads(path.read_bytes())
    except OSError as problem:
        raise JobError(f"{path} can't be read: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise JobError(f"{path} can't be read as JSON: {problem}") from problem


def _arithmetic(job: dict[str, Any]) -> str | None:
    """Return the arithmetic that the job's build declares; None: it is found."""
    from gonogo.spec.builds import EMULATOR, own_builds

    if "build" not in job and "target" not in job:
        return None
    target = job.get("target")
    executor = target.get("executor", EMULATOR) if isinstance(target, dict) else EMULATOR
    if not isinstance(executor, str):
        return None
    known, name = own_builds(executor), job.get("build")
    return known[name].arithmetic if isinstance(name, str) and name in known else None


def _load(test: TestSpec, places: Iterable[str], names: Iterable[str]) -> Tensors:
    """Load every file as name -> array, shaped (rows, N), (rows,) or (N,) as the domain has it."""
    from gonogo_workers.reports import npy

    allowed = tuple(names)
    loaded: Tensors = {}
    for place in places:
        name, separator, path = place.partition("=")
        if not separator:
            name, path = Path(place).stem, place
        fields.choice(name, allowed, path, f"isn't a tensor of {test.kernel}")
        if name in loaded:
            raise FieldError(path, name, "is given twice")
        try:
            with Path(path).open("rb") as file:
                given, fortran_order, dtype = npy.header(file)
                _check(test, name, path, given, dtype)
                array = npy.body(file, given, fortran_order, dtype)
        except (OSError, ValueError) as problem:
            raise JobError(f"{path} can't be read as a .npy file: it {problem}") from problem
        double = name in test.input_names and array.dtype.itemsize > 4
        kind = "int32" if test.bound_of(name) else "float64" if double else "float32"
        loaded[name] = array.astype(kind, order="C").reshape(test.flat_shape_of(name))
    return loaded


def _check(test: TestSpec, name: str, path: str, given: tuple[int, ...], dtype: Any) -> None:
    """Check what a header says before the array is read. Raises FieldError.

    Dimensions of 1 may stand anywhere ([1,1,1,N] for a gamma), and rows may be flat.
    """
    kinds = "f" if test.bound_of(name) is None else "iu"
    if dtype.kind not in kinds or dtype.itemsize > 8:
        limit = "float16, float32, float64" if kinds == "f" else "int32, int64"
        reason = f"{name} must be {'a float array' if kinds == 'f' else 'whole numbers'}"
        raise FieldError(path, str(dtype)[:60], reason, limit=limit)
    shape, flat = test.shape_of(name), test.flat_shape_of(name)
    if _squeezed(given) not in (_squeezed(shape), _squeezed(flat)):
        raise FieldError(path, list(given), f"{name} has a wrong shape", limit=list(shape))


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)

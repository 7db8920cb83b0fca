"""The numerics of a test: the formats and switches of the arithmetic that it requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import Field

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Kernel
from gonogo.spec.validation import OBJECT, VALUE, Bounded, Model, ObjectOrValue

Format = Literal["fp32", "tf32", "bf16", "fp16", "bfp8_b", "fp8_e4m3", "fp8_e5m2"]
FORMAT_NAMES: tuple[str, ...] = get_args(Format)
BLOCK_FORMATS = ("bfp8_b",)


class Numerics(Model):
    """The formats and switches of the arithmetic that the test requests."""

    input: Annotated[
        Annotated[Format, VALUE] | Annotated[dict[str, Format], Bounded, OBJECT], ObjectOrValue
    ] = Field("bf16", description="One format, or a map from tensors to formats (others: bf16)")
    output: Format = "bf16"
    accumulate: Literal["fp32", "bf16"] = Field("fp32", description="Format of the Dst registers")
    fidelity: Literal["lofi", "hifi2", "hifi3", "hifi4"] = "hifi4"
    buffers: Format = Field("bf16", description="Format of stored intermediates")
    statistics: Literal["given", "own"] = Field(
        "given",
        description=(
            "The source of a backward kernel's mean and rstd: its inputs (given), or its own "
            "computation; forward kernels always compute their own"
        ),
    )
    srcb: Literal["tf32", "bf16"] = Field(
        "tf32", description="Format in which SrcB sees an fp32 value in an op of mixed formats"
    )
    layout: Literal["tile", "row_major"] = "tile"

    def format_of(self, tensor: str) -> str:
        """Return the format of a tensor that is the kernel's input."""
        return self.input if isinstance(self.input, str) else self.input.get(tensor, "bf16")

    def of(self, kernel: Kernel) -> Numerics:
        """Return the canonical numerics of a kernel. Raises FieldError below "numerics"."""
        statistics = "own" if kernel.without_statistics is None else self.statistics
        inputs = kernel.with_statistics(statistics).inputs
        tensors = tuple(name for name in inputs if name not in kernel.whole)
        given = self.input
        if not isinstance(given, str):
            fields.known(given, tensors, "numerics.input")
            formats = {name: given.get(name, "bf16") for name in tensors}
            given = {name: value for name, value in formats.items() if value != "bf16"}
            if len(set(formats.values())) == 1:
                given = formats[tensors[0]]
        result = self.model_copy(update={"input": given, "statistics": statistics})
        for name, value in result._stored(tensors):
            if value in BLOCK_FORMATS:
                result._check_block_format(kernel, name, value)
        return result

    def _stored(self, tensors: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the fields that say how tensors are stored, with their formats."""
        yield "output", self.output
        yield from (("input", self.format_of(tensor)) for tensor in tensors)
        yield "buffers", self.buffers

    def _check_block_format(self, kernel: Kernel, name: str, value: str) -> None:
        if name != "buffers" and self.layout == "row_major":
            reason = f"{value} shares exponents within a tile"
            raise FieldError("numerics.layout", self.layout, reason, limit="tile")
        if not kernel.block_formats:
            allowed = ", ".join(other for other in FORMAT_NAMES if other not in BLOCK_FORMATS)
            reason = f"isn't allowed for {kernel.name}: its rows don't lie along tiles"
            raise FieldError(f"numerics.{name}", value, reason, limit=allowed)

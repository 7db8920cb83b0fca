"""The programs of backward passes that libraries are known to have, and what each may store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gonogo.kernels.layernorm import derivations
from gonogo.numerics.replay.program import ColumnOrder, Order, Program

CENTERED = "rstd (P - s1 - x^ s2)"
LINEAR = "rstd P + b x + c"
TWO_CASTS = "rstd P - rstd (s1 + x^ s2)"
PRODUCTS: Mapping[str, tuple[str, ...]] = {
    CENTERED: ("x - mean", "x^", "P", "P x^", "s1", "s2", "x^ s2", "P - s1", "P - s1 - x^ s2"),
    LINEAR: ("P", "b", "c"),
    TWO_CASTS: ("P", "rstd P", "rstd (s1 + x^ s2)"),
}
"""The formulas of dx, each with the quantities that it may store besides mean and rstd."""
UNCENTERED: Mapping[str, tuple[str, ...]] = {
    CENTERED: ("x^", "P", "P x^", "s2", "x^ s2", "P - x^ s2"),
    LINEAR: ("P", "b"),
    TWO_CASTS: ("P", "rstd P", "rstd x^ s2"),
}
"""The same where no mean is subtracted: s1 and c are 0."""
COLUMN_ORDERS = (
    ColumnOrder.rows,  # ATen
    ColumnOrder.windows,  # XLA; with up to 64 rows its windows are halves
    ColumnOrder.one_warp,  # XLA on a GPU
    ColumnOrder.lanes,  # TensorFlow
    ColumnOrder.folded,
    ColumnOrder.halves,
    ColumnOrder.quarters,
)
"""The orders of 16-bit column sums, those of libraries first."""

Known = tuple[tuple[Program, tuple[str, ...]], ...]
"""(form, stored quantities) of programs."""


def storable(product: str, *, centered: bool) -> tuple[str, ...]:
    """Return what a formula of dx may store; the last one is what dx is made of."""
    return (PRODUCTS if centered else UNCENTERED)[product]


def statistics(centered: bool) -> tuple[str, ...]:
    """Return the statistics that a kernel computes for each row."""
    return ("mean", "rstd") if centered else ("rstd",)


def of_inputs(centered: bool, is_given: bool) -> Known:
    """Return the known programs of dx; is_given: the kernel gets the statistics of its rows."""
    names = storable(TWO_CASTS, centered=centered)
    usual = (
        (Program(product=CENTERED), ("P",)),  # MLX, TensorFlow's fused kernel
        (Program(product=TWO_CASTS), names[1:]),  # flax
    )
    if is_given:
        return usual
    stored = statistics(centered)
    forms = tuple((Program(product=product), stored) for product in (CENTERED, LINEAR))
    if centered:
        aten = (Program("x", LINEAR), stored)  # on a CPU
        return (aten, *usual, (Program("x", CENTERED), stored), *forms, *derivations.derived())
    running = (Program(product=CENTERED, order=Order.running), ("P",))  # MLX
    return (*usual, running, *forms, *derivations.derived(centered=False))


def of_plain_sums() -> Known:
    """Return the known programs of dbeta."""
    return tuple((Program(column_order=order), ("column sum",)) for order in COLUMN_ORDERS)


def of_same_kernel(program: Program, *, centered: bool, is_given: bool) -> tuple[Program, ...]:
    """Return the programs of dgamma in a kernel whose dx has this storing program.

    A kernel computes mean, rstd and x^ once: dgamma has them as dx has. What it stores after that,
    and the order down the columns, is its own.
    """
    if program.product in derivations.DERIVED:
        base = program
        shared = derivations.forward_names(program.product, centered=centered)
    else:
        base = replace(program, product=Program().product)
        shared = ("x^",) if is_given else (*statistics(centered), "x - mean", "x^")
    inherited = {name: form for name, form in program.stored.items() if name in shared}
    form = next(iter(inherited.values()), None)
    if form is None:
        return ()
    listed = []
    for order in (ColumnOrder.blocked, *COLUMN_ORDERS):
        sums = () if order is ColumnOrder.blocked else ("column sum",)
        for names in (sums, ("dy x^", *sums)):
            stored = {**inherited, **dict.fromkeys(names, form)}
            listed.append(replace(base, stored=stored, column_order=order))
    return tuple(listed)


def in_any_order(
    formats: Sequence[str], likely: Iterable[Program], forms: Iterable[Program]
) -> Iterator[Program]:
    """Yield the programs of sums to which rows are added in any order, in fp32 and in 16 bits.

    likely: programs of what is summed that are tried, too. forms: those with nothing stored.
    """
    order = ColumnOrder.unordered
    plain = [form for form in forms if form.column_order is ColumnOrder.blocked]
    stored = [one for one in likely if one.stored and "column sum" not in one.stored]
    for program in (*plain, *stored):
        yield replace(program, column_order=order)
    for form in formats:
        for program in (*plain, *stored):
            narrow = {**program.stored, "column sum": form}
            yield replace(program, column_order=order, stored=narrow)


def of_weighted_sums(centered: bool, is_given: bool) -> Known:
    """Return the known programs of dgamma; is_given: as of_inputs has it."""
    terms: list[tuple[Program, tuple[str, ...]]] = [
        (Program(), ()),
        (Program(), ("x^",)),
        (Program(), ("dy x^",)),
        (Program(), ("x^", "dy x^")),
    ]
    if not is_given:
        stored = statistics(centered)
        if centered:
            terms += [(Program("x"), stored), (Program("x"), (*stored, "dy x^"))]  # Liger
        terms.append((Program(), stored))
    if not centered:
        terms.append((Program(order=Order.running), ("x^", "dy x^")))  # MLX
    listed = [(program, names) for program, names in terms if names]
    for order in COLUMN_ORDERS:
        listed += [
            (replace(program, column_order=order), (*names, "column sum"))
            for program, names in terms
        ]
    if not is_given:
        for program, names in derivations.derived(centered=centered):
            is_blocked = program.column_order is ColumnOrder.blocked
            sums = () if is_blocked else ("column sum",)
            forward = derivations.forward_names(program.product, centered=centered)
            inherited = tuple(name for name in names if name in forward)
            choices = [(program, (*inherited, "dy x^", *sums))]
            if (
                program.column_order is ColumnOrder.windows
            ):  # compiled fp16 code contracts the products
                folded = replace(program, column_order=ColumnOrder.folded)
                choices += [(program, (*inherited, *sums)), (folded, (*inherited, *sums))]
            listed += [choice for choice in choices if choice not in listed]
    return tuple(listed)

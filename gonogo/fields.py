"""Read untrusted plain JSON, field by field.

Each wrong value becomes a FieldError that names it and its limit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from gonogo.errors import FieldError, FieldErrors

_MAX_NAME = 200
"""Characters: a longer text is no misspelled name, and comparing it would take long."""


MAX_PROBLEMS = 20
"""Problems of one file that are told."""


class Problems:
    """All that is wrong with one document: people want to see it at once."""

    def __init__(self) -> None:
        self._errors: list[FieldError] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note the FieldError that ends the block, and go on behind it."""
        try:
            yield
        except FieldErrors as several:
            self._errors += several.problems
        except FieldError as problem:
            self._errors.append(problem)

    def check(self) -> None:
        """Raise FieldErrors if anything was wrong."""
        if self._errors:
            raise FieldErrors(self._errors[:MAX_PROBLEMS])


def join(path: str, name: object) -> str:
    """Return the dotted path of a member: `test` and `shape` give `test.shape`.

    An empty path adds nothing.
    """
    return f"{path}.{name}" if path else str(name)


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """Return `value` if it is a JSON object. Raises FieldError."""
    if not isinstance(value, Mapping):
        raise FieldError(path, value, "must be an object")
    for key in value:
        if not isinstance(key, str):
            raise FieldError(path, key, "every key must be text")
    return value


def known(data: Mapping[str, Any], names: Iterable[str], path: str) -> None:
    """Raise FieldError for the first member of `data` that isn't among `names`."""
    allowed = tuple(names)
    for key in data:
        if key not in allowed:
            raise FieldError(
                join(path, key),
                data[key],
                "unknown field" + did_you_mean(key, allowed),
                limit="one of " + ", ".join(allowed) if allowed else "no fields",
            )


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the name that is most like a misspelled one, or ""."""
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        return ""
    alike = get_close_matches(name, tuple(names), n=1)
    return f"; did you mean {alike[0]!r}?" if alike else ""


def choice(
    value: object,
    allowed: Collection[str],
    path: str,
    reason: str = "unknown value",
    *,
    more: str = "",
) -> str:
    """Return `value` if it is one of the words `allowed`. Raises FieldError.

    more: what the limit says behind the words.
    """
    if not isinstance(value, str) or value not in allowed:
        reason += did_you_mean(value, allowed)
        raise FieldError(path, value, reason, limit="one of " + ", ".join(allowed) + more)
    return value


def check_distinct(names: Sequence[str], path: str) -> None:
    """Raise FieldError for the first name that is in the list before."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise FieldError(join(path, place), name, "is named twice")


def check_count(count: int, most: int, path: str, reason: str, unit: str = "") -> None:
    """Raise FieldError for a number of things above its limit, such as the tests of a file."""
    if count > most:
        raise FieldError(path, count, reason, limit=f"{most} {unit}".rstrip())


def number(
    value: object,
    path: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a finite float within its limits. Raises FieldError.

    It must be at least `least`, strictly above `above`, at most `most`, and strictly below `below`.
    A bool isn't a number.
    """
    real = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    try:
        result = math.nan if real is None else float(real)
    except OverflowError:
        result = math.inf
    if real is None:
        reason = "must be a number"
    elif not math.isfinite(result):
        reason = "must be finite"
    elif (least is not None and result < least) or (above is not None and result <= above):
        reason = "is too small"
    elif (most is not None and result > most) or (below is not None and result >= below):
        reason = "is too large"
    else:
        return result + 0.0  # -0.0 becomes 0.0
    raise FieldError(path, value, reason, limit=_limit(least, above, most, below))


def integer(value: object, path: str, *, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int within its limits. Raises FieldError.

    In JSON 3.0 is the integer 3; True isn't an integer.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        reason = "must be an integer"
    elif least is not None and value < least:
        reason = "is too small"
    elif most is not None and value > most:
        reason = "is too large"
    else:
        return value
    raise FieldError(path, value, reason, limit=_limit(least, None, most))


def _limit(
    least: float | None, above: float | None, most: float | None, below: float | None = None
) -> str | None:
    parts = []
    if least is not None:
        parts.append(f">= {least:g}")
    if above is not None:
        parts.append(f"> {above:g}")
    if most is not None:
        parts.append(f"<= {most:g}" if abs(most) < 1e6 or isinstance(most, float) else f"<= {most}")
    if below is not None:
        parts.append(f"< {below:g}")
    return " and ".join(parts) or None

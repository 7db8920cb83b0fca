"""The audit's chain: one for all writers, and nobody changes, deletes or cuts entries unseen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, delete, select, text, update

from gonogo_storage.access import audit
from gonogo_storage.access.audit_chain import Head, hash_of, verify
from gonogo_storage.db.engine import reading, session
from gonogo_storage.tables import AuditRow

WRITERS, ENTRIES = 4, 8


def exported(engine: Engine) -> list[dict[str, Any]]:
    """The entries as an export has them: through JSON."""
    with reading(engine) as current:
        entries = audit.export(current)
    return [json.loads(json.dumps(entry)) for entry in entries]


def write(engine: Engine, count: int, actor: str = "local") -> None:
    for number in range(count):
        with session(engine) as transaction:
            detail = {"a": [1.5, None, "ü\u2028"], "name": f"{actor} {number}", "big": 2**53}
            audit.record(
                transaction, actor=actor, action="test.done", subject=str(number), detail=detail
            )
            audit.record(transaction, actor=actor, action="test.done", subject="2")


def test_concurrent_writers_share_one_chain(engine: Engine) -> None:
    threads = [
        threading.Thread(target=write, args=(engine, ENTRIES, f"writer-{number}"))
        for number in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = exported(engine)
    result = verify(entries)
    assert (result.problem, result.entries) == (None, 2 * WRITERS * ENTRIES)
    with reading(engine) as current:
        assert audit.head(current) == result.head == Head.parse(str(result.head))
        pages = audit.export(current, limit=5), audit.export(current, after=5, limit=5)
    assert [entry["number"] for page in pages for entry in page] == list(range(1, 11))


def test_what_is_rolled_back_leaves_no_entry_and_no_gap(engine: Engine) -> None:
    def fail() -> None:
        with session(engine) as transaction:
            audit.record(transaction, actor="local", action="test.undone", subject="x")
            transaction.execute(select(AuditRow))
            raise ValueError

    write(engine, 1)
    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    write(engine, 1)
    assert [entry["action"] for entry in exported(engine)] == ["test.done"] * 4
    assert verify(exported(engine)).problem is None


def _rehashed(engine: Engine) -> None:
    """Change an entry, and give it the hash that fits."""
    entry = exported(engine)[2]
    entry["actor"] = "somebody"
    change = {"actor": "somebody", "hash": hash_of(entry)}
    _change(engine, update(AuditRow).where(AuditRow.number == 3).values(**change))


def _change(engine: Engine, statement: Any) -> None:
    with session(engine) as transaction:
        transaction.execute(statement)


THIRD = AuditRow.number == 3
TAMPERING: dict[str, tuple[Callable[[Engine], None], str]] = {
    "changed": (
        lambda engine: _change(engine, update(AuditRow).where(THIRD).values(actor="somebody")),
        "entry 3 was changed",
    ),
    "detail": (
        lambda engine: _change(
            engine, text("UPDATE audit SET detail = '{\"a\": 1}' WHERE number = 3")
        ),
        "entry 3 was changed",
    ),
    "rehashed": (_rehashed, "entry 4 doesn't follow entry 3"),
    "deleted": (
        lambda engine: _change(engine, delete(AuditRow).where(THIRD)),
        "entry 3 is missing",
    ),
    "cut": (
        lambda engine: _change(engine, delete(AuditRow).where(AuditRow.number > 4)),
        "ends at entry 4, before the kept head",
    ),
    "all": (
        lambda engine: _change(engine, delete(AuditRow)),
        "ends at entry 0, before the kept head",
    ),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found(engine: Engine, kind: str) -> None:
    write(engine, 3)
    head = verify(exported(engine)).head
    tamper, words = TAMPERING[kind]
    tamper(engine)
    assert words in str(verify(exported(engine), head).problem)


def test_a_tail_that_was_cut_and_grew_again_is_found_by_the_kept_head(engine: Engine) -> None:
    write(engine, 3)
    head = verify(exported(engine)).head
    _change(engine, delete(AuditRow).where(AuditRow.number > 4))
    write(engine, 3)
    assert verify(exported(engine)).problem is None
    assert "is not the one of the kept head" in str(verify(exported(engine), head).problem)


@pytest.mark.parametrize("line", [None, [], {"number": 1}, "entry"])
def test_a_line_that_is_no_entry_is_said(line: Any) -> None:
    assert verify([line]).problem == "entry 1 is no entry of an audit"


@pytest.mark.parametrize("head", ["", "1", "1:abc", f"x:{'0' * 64}", f"1:{'Z' * 64}"])
def test_a_head_that_is_none_is_refused(head: str) -> None:
    with pytest.raises(ValueError, match="NUMBER:HASH"):
        Head.parse(head)

"""Rows that are loaded in bulk, on SQLite and on PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Engine, select

from gonogo_service.kit.database.dialect import load_once
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.outbox.model import LeaseRow


def stored(engine: Engine) -> dict[str, str]:
    with reading(engine) as current:
        rows = current.execute(select(LeaseRow.name, LeaseRow.holder)).all()
        return {row.name: row.holder for row in rows}


def test_existing_rows_stay_and_the_others_are_added(engine: Engine) -> None:
    with session(engine) as current:
        load_once(
            current, LeaseRow, {"name": ["a", "b"], "holder": ["first"] * 2, "until": [1.0] * 2}
        )
    with session(engine) as current:
        # a row of the same transaction, which the loading leaves alone, too
        current.add(LeaseRow(name="c", holder="added", until=1.0))
        names = ["b", "c", "d"]
        load_once(current, LeaseRow, {"name": names, "holder": ["second"] * 3, "until": [2.0] * 3})
        load_once(current, LeaseRow, {"name": ["e"], "holder": ["third"], "until": [3.0]})
    assert stored(engine) == {"a": "first", "b": "first", "c": "added", "d": "second", "e": "third"}


def test_a_transaction_goes_on_after_rows_that_existed(engine: Engine) -> None:
    with session(engine) as current:
        for holder in ("first", "second", "third"):
            load_once(current, LeaseRow, {"name": ["a"], "holder": [holder], "until": [1.0]})
        current.add(LeaseRow(name="b", holder="added", until=1.0))
    assert stored(engine) == {"a": "first", "b": "added"}

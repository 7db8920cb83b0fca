"""Histories of a test over jobs and builds, made through the storage functions that ingest uses,
and the assessor that looks at them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr

import migrated_files
import stored_jobs
from gonogo.settings import Settings
from gonogo_service.background.assess import Assessor
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database import engine as engines
from gonogo_service.tests.variants import Variant
from parsed_tests import parse_test


def spec_of(atol: float) -> dict[str, Any]:
    """The nightly test with another tolerance: a variant of its own."""
    return {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": atol}}


def row(
    seed: int, *, wrong: bool = False, within: bool = True, bits: str = "", **changes: Any
) -> dict[str, Any]:
    """A result of one seed, as a worker sends it; `bits` makes its digests others than those of the
    seed alone."""
    result = stored_jobs.row(seed, wrong=wrong, within=within)
    result |= {"position": 0, "host_run": f"run{seed:06d}", **changes}
    for output in result["outputs"].values():
        output["digest"] = f"{bits:>03}{'bad' if wrong else 'fed'}{seed:010x}"
    return result


class World:
    """A migrated database and the role that assesses."""

    def __init__(self, core: BackgroundContext) -> None:
        self.core, self.engine = core, core.engine
        self.assessor = Assessor(core)

    def job(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        build: str = "b1",
        sequence: int = 1,
        test: Mapping[str, Any] = stored_jobs.NIGHTLY,
        context: Any = "isolated",
        diagnosed: bool = False,
        assess: bool = True,
        **changes: Any,
    ) -> JobRow:
        """A job that is over, and assessed unless told otherwise."""
        seeds = sorted({int(row["seed"]) for row in rows})
        place = {"branch": "main", "build_sequence": sequence, "context": context}
        with engines.session(self.engine) as session:
            new = stored_jobs.new(test=test, build=build, seeds=seeds, **{**place, **changes})
            job = jobs.create(session, new)
            stored_jobs.report(session, job.id, [dict(row) for row in rows], diagnosed=diagnosed)
            stored_jobs.finish(session, job.id)
            record = jobs.get(session, job.id)
        assert record is not None
        if assess:
            assert self.assess() >= 1
        return record

    def assess(self) -> int:
        """Deliver every outbox message that is due; return how many."""
        done = 0
        while number := self.assessor.run_once():
            done += number
        return done

    def flags(self, test: Mapping[str, Any] = stored_jobs.NIGHTLY) -> dict[str, FlagRow]:
        """The flags of a test by kind."""
        with engines.reading(self.engine) as session:
            return {
                flag.kind: flag for flag in FLAGS.page(session, test=variant(test).test_key).items
            }


def variant(test: Mapping[str, Any] = stored_jobs.NIGHTLY) -> Variant:
    """The variant that `World.job` runs a test as."""
    return Variant(parse_test(test).key, "main", "wormhole", "n150")


@contextmanager
def world(database_url: str) -> Iterator[World]:
    """A world on a fresh database. Nothing listens where its broker should be: an assessment needs
    none."""
    settings = Settings(
        database_url=database_url,
        broker_url="redis://127.0.0.1:1/0",
        secret_key=SecretStr("k" * 40),
    )
    core = open_background_context(settings, threading.Event())
    migrated_files.upgrade(core.engine)
    try:
        yield World(core)
    finally:
        core.close()

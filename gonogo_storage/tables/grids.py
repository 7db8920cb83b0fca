"""How far a job has come, seed by seed: what its page draws as a grid without reading every row."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType


class SeedGridRow(Base):
    """One letter for each (seed, repeat) of a job, in the order of gonogo_storage.seeds.seed_order: its
    verdict, "." while it has none.

    Ingest keeps it in the transaction of the rows, under the job's lock. A job that was over before
    this table came has none: its rows are read then.
    """

    __tablename__ = "seed_grids"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    letters: Mapped[str]

"""A job's verdicts seed by seed, so that its page draws a grid without reading all rows."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType


class SeedGridRow(Base):
    """A job's verdicts: one character per (seed, repeat), "." while there is none.

    The order is that of gonogo_storage.seeds.seed_order. Ingest updates it in the results'
    transaction, under the job's lock. A job without a row here is read from its results.
    """

    __tablename__ = "seed_grids"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    letters: Mapped[str]

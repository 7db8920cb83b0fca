"""The base class of all tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Double, MetaData
from sqlalchemy.orm import DeclarativeBase

from gonogo_service.kit.database.columns import JsonType, TextType, UtcTime


class Base(DeclarativeBase):
    """The base class; it maps Python types to columns and names constraints for migrations."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: TextType,
        datetime: UtcTime,
        dict[str, Any]: JsonType,
        dict[str, str]: JsonType,
        dict[str, int]: JsonType,
        list[Any]: JsonType,
        list[str]: JsonType,
        float: Double,
    }

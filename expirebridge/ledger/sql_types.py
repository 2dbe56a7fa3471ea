"""The columns of the ledger's tables in each kind of database."""

from typing import Any, Final

from sqlalchemy import Column, String, Text, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

_MYSQL: Final = ("mysql", "mariadb")
INNODB: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


def ascii_(length: int) -> TypeEngine[str]:
    """Text whose bytes are compared: `A` is not `a`, and no collation decides."""
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), *_MYSQL)
    )


def unicode_(length: int) -> TypeEngine[str]:
    """Text of any characters whose bytes are compared."""
    return (
        String(length)
        .with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL)
    )


def long_text() -> TypeEngine[str]:
    """Text of up to 64 KiB and more: what MySQL calls TEXT ends one byte before that."""
    return Text().with_variant(
        mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL
    )


def column(
    name: str, type: TypeEngine[Any], default: Any = None, *, nullable: bool = False, **more: Any
) -> Column[Any]:
    """A column, with the default that the database itself gives."""
    if isinstance(default, int):
        default = text(str(int(default)))
    return Column(name, type, server_default=default, nullable=nullable, **more)

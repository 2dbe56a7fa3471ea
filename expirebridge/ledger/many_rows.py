"""Updates of many rows, each with values of its own, in one statement.

A statement for each row costs the database more than the row itself, and this process, too. Where
SQL reads JSON, one statement takes the values of all rows as one text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Connection,
    Dialect,
    Table,
    TextClause,
    bindparam,
    literal_column,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import psycopg2
from sqlalchemy.types import TypeEngine

Parameters = dict[str, Any]
"""The parameters of a row; `b_id` is its id, `b_message` a text that may be refused."""
GivenValues = Mapping[str, ColumnElement[Any]]
"""The values of a row by their names: parameters, or the columns of rows that are given."""

_ROWS: Final = "b_rows"
_POSTGRESQL: Final = """
UPDATE {table} SET {changes}
FROM json_to_recordset(CAST(:b_rows AS json)) AS given({columns})
WHERE {where}
"""
# An outer join begins with what is given: any other may begin with the table, and wait for locks of
# all its rows. SQLAlchemy writes no such UPDATE.
_MYSQL: Final = """
UPDATE JSON_TABLE(:b_rows, '$[*]' COLUMNS ({columns})) AS given
LEFT JOIN {table} ON {where}
SET {changes}
"""


class RowUpdate:
    """An update of rows that are given, each with its own `values`, whose types these are.

    `where` finds the row of such values by its key, and `changes` are its columns that are set.
    Other parameters are named, and the same for all rows.
    """

    def __init__(
        self, table: Table, values: Mapping[str, TypeEngine[Any]], *,
        where: Callable[[GivenValues], ColumnElement[bool]],
        changes: Callable[[GivenValues], Mapping[str, ColumnElement[Any]]],
    ) -> None:  # fmt: skip
        self._names = frozenset(values)
        one = {name: bindparam(name, type_=type) for name, type in values.items()}
        self.each = update(table).where(where(one)).values(**changes(one))
        """Updates one row."""
        given = {name: literal_column(f"given.{name}", type) for name, type in values.items()}

        def many(template: str, dialect: Dialect, column: str) -> TextClause:
            def sql(part: ClauseElement) -> str:
                return str(part.compile(dialect=dialect))

            names = dialect.identifier_preparer
            return text(
                template.format(
                    table=names.format_table(table),
                    columns=", ".join(
                        column.format(name=name, type=type.compile(dialect))
                        for name, type in values.items()
                    ),
                    where=sql(where(given)),
                    changes=", ".join(
                        f"{names.format_column(table.c[name])} = {sql(value)}"
                        for name, value in changes(given).items()
                    ),
                )
            )

        # Without the last words, a value that cannot be read would be NULL.
        of_mysql = many(
            _MYSQL, mysql.dialect(paramstyle="named"),
            "{name} {type} PATH '$.{name}' ERROR ON ERROR",
        )  # fmt: skip
        # The driver whose parameters have no casts: in a text, each driver adds its own.
        of_postgresql = many(
            _POSTGRESQL,
            psycopg2.dialect(paramstyle="named"),  # type: ignore[no-untyped-call]
            "{name} {type}",
        )
        self._many = {"postgresql": of_postgresql, "mysql": of_mysql, "mariadb": of_mysql}

    def execute(self, connection: Connection, rows: Sequence[Parameters]) -> None:
        """Update these rows; there is at least one."""
        many = self._many.get(connection.dialect.name)
        if many is None:  # SQLite runs in this process: there are no round trips to spare
            connection.execute(self.each, rows)
            return
        given = [{name: row[name] for name in self._names} for row in rows]
        same = {name: value for name, value in rows[0].items() if name not in self._names}
        # Characters as they are: those that the database lacks it refuses as in any parameter.
        connection.execute(many, {**same, _ROWS: json.dumps(given, ensure_ascii=False)})

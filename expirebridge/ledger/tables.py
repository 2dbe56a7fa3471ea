"""The ledger's tables, and what each column means.

Times are whole milliseconds since 1970 on the database's clock, unless a column says otherwise.
Redis knows when a task is due, who runs it, and its attempts. The row knows that the task exists,
its arguments, what the application wants of it, and its final status.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Executable,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    event,
    insert,
    text,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from expirebridge.ledger.clock import NowMs, RandomId
from expirebridge.ledger.view import CreateView, DropView

VERSION: Final = 1
"""The version of these tables: what `expirebridge_schema` holds."""
NAMES: Final = ("expirebridge_task", "expirebridge_pass", "expirebridge_schema")
DEFAULT_NAME: Final = "default"
"""The name of the ledger in a row that names none."""
LONGEST_NAME, LONGEST_ID, LONGEST_FUNC, LONGEST_EXT = 64, 128, 200, 255
"""Characters."""


class Status(IntEnum):
    """How a task stands, for good once it is not 1. Only the relay and `complete_in` write it."""

    WAITING = 1  # or running: Redis knows which
    SUCCEEDED = 10
    FAILED = 20
    CANCELLED = 30


class Wanted(StrEnum):
    """What the application wants of a task, beside that it runs."""

    NONE = "none"
    CANCELLED = "cancelled"


class Todo(IntEnum):
    """Whether the relay is to carry a row to Redis."""

    NOTHING = 0
    RELAY = 1  # it is new, or what is wanted of it changed
    REBUILD = 2  # Redis lost what was carried there; no ledgered task is claimed meanwhile


def _ascii(length: int) -> TypeEngine[str]:
    """Text whose bytes are compared: `A` is not `a`, and no collation decides."""
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), *_MYSQL)
    )


def _unicode(length: int) -> TypeEngine[str]:
    return (
        String(length)
        .with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL)
    )


def _long() -> TypeEngine[str]:
    """Text of up to 64 KiB and more: what MySQL calls TEXT ends one byte before that."""
    return Text().with_variant(
        mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL
    )


_MYSQL = ("mysql", "mariadb")
_INNODB: dict[str, Any] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


@dataclass(frozen=True, slots=True)
class Tables:
    """The ledger's tables in one MetaData."""

    task: Table
    """`expirebridge_task`: one row for each task."""
    passes: Table
    """`expirebridge_pass`: the relay's numbers, one row for each partition."""
    schema: Table
    """`expirebridge_schema`: one row, with the version of these tables and who they are."""


def tables(metadata: MetaData) -> Tables:
    """Put the ledger's tables into `metadata`, such as that of your models, and return them.

    Calling it again returns the same tables. Its `create_all` then creates them, with the view
    `delay_queue` and the version. A tool that only compares tables, such as Alembic, must execute
    `extras` as well. The tables stand in the MetaData's schema.
    """
    schema = f"{metadata.schema}." if metadata.schema else ""
    there = [metadata.tables.get(f"{schema}{name}") for name in NAMES]
    if None not in there:
        return Tables(*cast(list[Table], there))
    made = Tables(task_table(metadata), pass_table(metadata), schema_table(metadata))
    _with_extras(made)
    return made


@cache
def own_tables() -> Tables:
    """The tables in a MetaData of their own, for who has none."""
    return tables(MetaData())


def extras(made: Tables) -> list[Executable]:
    """What `create_all` executes beside the tables themselves: the view, and the version."""
    return [CreateView(made.task), insert(made.schema).values(version=VERSION)]


def _with_extras(made: Tables) -> None:
    view, version = extras(made)

    def after_task(_: Table, connection: Connection, **__: Any) -> None:
        connection.execute(view)

    def after_schema(_: Table, connection: Connection, **__: Any) -> None:
        connection.execute(version)

    def before_task(target: Table, connection: Connection, **_: Any) -> None:
        connection.execute(DropView(target))

    event.listen(made.task, "after_create", after_task)
    event.listen(made.task, "before_drop", before_task)
    event.listen(made.schema, "after_create", after_schema)


def task_table(metadata: MetaData) -> Table:
    """`expirebridge_task`: that a task exists, and what is wanted of it.

    A plain INSERT gives `func`, `params` and either `delay_ms` or `at_ms`; all else has a default.
    """
    return Table(
        NAMES[0],
        metadata,
        _column(
            "ledger", _ascii(LONGEST_NAME), DEFAULT_NAME, primary_key=True,
            comment="the name of the ledger: several applications can share the table",
        ),
        _column(
            "id", _ascii(LONGEST_ID), RandomId(), primary_key=True,
            comment="1 to 128 characters from A-Z a-z 0-9 and _ . : @ -",
        ),
        _column(
            "generation", Integer(), 1,
            comment="the number of this life of the id: raised when a new task takes the id, and "
            "when Redis revives a finished one",
        ),
        _column(
            "revision", Integer(), 1,
            comment="raised by each statement that changes what is wanted; never goes back",
        ),
        _column("func", _ascii(LONGEST_FUNC), comment="the handler: module.function"),
        _column(
            "params", _long(), comment="its arguments: a JSON array, or an object of keywords"
        ),
        _column(
            "options", _long(),
            comment="tags, retry, timeout, misfire: a JSON object as `expirebridge export` writes "
            "it; NULL for none", nullable=True,
        ),
        _column(
            "ext_string", _unicode(LONGEST_EXT), nullable=True,
            comment="what the application calls the task: for lookup and cancel, not unique",
        ),
        _column("wanted", _ascii(16), Wanted.NONE, comment="none, or cancelled"),
        _column(
            "status", SmallInteger(), Status.WAITING,
            comment="1 waiting or running, 10 succeeded, 20 failed, 30 cancelled",
        ),
        _column(
            "at_ms", BigInteger(), nullable=True,
            comment="when it is to run, ms since 1970; Redis's clock decides",
        ),
        _column(
            "delay_ms", BigInteger(), nullable=True,
            comment="or how long after `written` it is to run, in ms",
        ),
        _column(
            "written", BigInteger(), NowMs(),
            comment="when the statement ran that set at_ms or delay_ms",
        ),
        _column(
            "due", BigInteger(), nullable=True,
            comment="when it is due on Redis's clock, as last relayed or written back; NULL: at_ms "
            "or delay_ms are not relayed yet",
        ),
        _column("retry_times", Integer(), 0, comment="how many attempts were made before"),
        _column(
            "message", _long(), nullable=True,
            comment="why the last attempt failed, or why the row was refused",
        ),
        _column(
            "todo", SmallInteger(), Todo.RELAY,
            comment="1 to be relayed, 2 to be rebuilt, 0 nothing to do",
        ),
        _column(
            "stamp", BigInteger(), 0, comment="the number of the pass that last carried this row"
        ),
        _column(
            "slot", SmallInteger(), nullable=True,
            comment="the partition of the id; filled by the relay",
        ),
        _column("created", BigInteger(), NowMs(), comment="when this life of the id was inserted"),
        _column("modified", BigInteger(), NowMs(), comment="when the row was last changed"),
        CheckConstraint("wanted IN ('none', 'cancelled')", name="expirebridge_task_wanted"),
        CheckConstraint("status IN (1, 10, 20, 30)", name="expirebridge_task_status"),
        CheckConstraint("todo IN (0, 1, 2)", name="expirebridge_task_todo_known"),
        CheckConstraint(
            "(at_ms IS NULL) <> (delay_ms IS NULL)", name="expirebridge_task_one_time"
        ),
        *_indices(),
        **_INNODB,
    )  # fmt: skip


def _indices() -> list[Index]:
    """For the relay, for a lookup by ext_string, and for pruning; partial where that is known."""

    def index(name: str, *columns: str, only: str) -> Index:
        return Index(
            f"expirebridge_task_{name}",
            *columns,
            postgresql_where=text(only),
            sqlite_where=text(only),
        )

    return [
        index("todo", "ledger", "todo", "slot", "status", only="todo > 0"),
        index("ext", "ledger", "ext_string", only="ext_string IS NOT NULL"),
        index("ended", "ledger", "status", "modified", only="status > 1"),
    ]


def pass_table(metadata: MetaData) -> Table:
    """`expirebridge_pass`: the numbers of the relay's passes, one sequence for each partition."""
    return Table(
        NAMES[1],
        metadata,
        _column("ledger", _ascii(LONGEST_NAME), primary_key=True, comment="its name"),
        _column(
            "partition", SmallInteger(), primary_key=True, autoincrement=False,
            comment="the partition whose passes are counted",
        ),
        _column("number", BigInteger(), 0, comment="the last number taken"),
        _column(
            "stamp", BigInteger(), 0,
            comment="the highest stamp ever given to a row: rows are pruned, this is kept",
        ),
        _column(
            "nonce", _ascii(64),
            comment="binds ledger and Redis: Redis holds the same, or the relay stops",
        ),
        **_INNODB,
    )  # fmt: skip


def schema_table(metadata: MetaData) -> Table:
    """`expirebridge_schema`: the version of the tables, and which database this is."""
    return Table(
        NAMES[2],
        metadata,
        _column(
            "version", Integer(), primary_key=True, autoincrement=False,
            comment="the version of these tables",
        ),
        _column(
            "identity", _ascii(32), RandomId(),
            comment="drawn when they were created: tells this database from another",
        ),
        **_INNODB,
    )  # fmt: skip


def _column(
    name: str, type: TypeEngine[Any], default: Any = None, *, nullable: bool = False, **more: Any
) -> Column[Any]:
    if isinstance(default, int):
        default = text(str(int(default)))
    return Column(name, type, server_default=default, nullable=nullable, **more)

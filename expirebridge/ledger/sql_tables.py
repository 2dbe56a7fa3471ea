"""The ledger's tables and their columns.

Times are whole milliseconds since 1970 on the database's clock, unless a column says otherwise.
Redis has the due time of a task, the listener that runs it, and its attempts. The row has the
task's arguments, the state that the application wants, and its final status.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    Connection,
    Executable,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    event,
    insert,
    text,
)

from expirebridge.ledger.rows import LARGEST_TIME, LONGEST_EXT, DesiredState, Status, SyncState
from expirebridge.ledger.sql_types import (
    INNODB,
    CreateView,
    DropView,
    NowMs,
    RandomId,
    ascii_,
    column,
    long_text,
    unicode_,
)

VERSION: Final = 1
"""The version of these tables: what `expirebridge_schema` holds."""
NAMES: Final = (
    "expirebridge_task", "expirebridge_pass", "expirebridge_schema", "expirebridge_series",
)  # fmt: skip
DEFAULT_NAME: Final = "default"
"""The name of the ledger in a row that names none."""
LONGEST_NAME, LONGEST_ID, LONGEST_FUNC = 64, 128, 200
"""Characters."""
# A row that Redis has had is never kept back: a task of its old version may be there. Nor is one
# that has ended, or one that cannot be a task, so that it is refused soon: SQLite keeps text where
# numbers belong.
_TIME: Final = "coalesce(due, at_ms, written + delay_ms)"
_PLANNED: Final = (
    "CASE WHEN wanted = 'cancelled' OR status > 1 OR (stamp > 0 AND todo = 1) "
    f"OR delay_ms > {LARGEST_TIME} THEN 0 "
    f"WHEN {_TIME} BETWEEN 0 AND {LARGEST_TIME} THEN {_TIME} ELSE 0 END"
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The ledger's tables in one MetaData."""

    task: Table
    """`expirebridge_task`: one row for each task."""
    passes: Table
    """`expirebridge_pass`: the relay's progress, one row for each partition."""
    schema: Table
    """`expirebridge_schema`: one row, with the version and the identity of these tables."""
    series: Table
    """`expirebridge_series`: one row for each series, with its watermark."""

    def all(self) -> list[Table]:
        """Every table."""
        return [self.task, self.passes, self.schema, self.series]


def tables(metadata: MetaData) -> Tables:
    """Put the ledger's tables into `metadata`, such as that of your models, and return them.

    Calling it again returns the same tables. Its `create_all` then creates them, with the view
    `delay_queue` and the version. A tool that only compares tables, such as Alembic, must execute
    `extras` as well. The tables are created in the MetaData's schema.
    """
    schema = f"{metadata.schema}." if metadata.schema else ""
    there = [metadata.tables.get(f"{schema}{name}") for name in NAMES]
    if None not in there:
        return Tables(*cast(list[Table], there))
    made = Tables(
        task_table(metadata), pass_table(metadata), schema_table(metadata), series_table(metadata)
    )
    _with_extras(made)
    return made


@cache
def own_tables() -> Tables:
    """Return the tables in a MetaData of their own, for applications without one."""
    return tables(MetaData())


def extras(made: Tables) -> list[Executable]:
    """Return what `create_all` executes beside the tables: the view, and the version."""
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
        column(
            "ledger", ascii_(LONGEST_NAME), DEFAULT_NAME, primary_key=True,
            comment="the name of the ledger: several applications can share the table",
        ),
        column(
            "id", ascii_(LONGEST_ID), RandomId(), primary_key=True,
            comment="1 to 128 characters from A-Z a-z 0-9 and _ . : @ -",
        ),
        column(
            "generation", BigInteger(), NowMs(),
            comment="the number of this life of the id: when it began, so that it is higher than "
            "that of any task which had the id before; one more when Redis revives a finished one",
        ),
        column(
            "revision", Integer(), 1,
            comment="raised by each statement that changes what is wanted; never goes back",
        ),
        column("func", ascii_(LONGEST_FUNC), comment="the handler: module.function"),
        column(
            "params", long_text(), comment="its arguments: a JSON array, or an object of keywords"
        ),
        column(
            "options", long_text(),
            comment="tags, retry, timeout, misfire: a JSON object as `expirebridge export` writes "
            "it; NULL for none", nullable=True,
        ),
        column(
            "ext_string", unicode_(LONGEST_EXT), nullable=True,
            comment="what the application calls the task: for lookup and cancel, not unique",
        ),
        column("wanted", ascii_(16), DesiredState.NONE, comment="none, or cancelled"),
        column(
            "status", SmallInteger(), Status.WAITING,
            comment="1 waiting or running, 10 succeeded, 20 failed, 30 cancelled",
        ),
        column(
            "decided", ascii_(16), nullable=True,
            comment="of a task that waits for a signal: deadline, or signal; NULL: it still waits",
        ),
        column(
            "at_ms", BigInteger(), nullable=True,
            comment="when it is to run, ms since 1970; Redis's clock decides",
        ),
        column(
            "delay_ms", BigInteger(), nullable=True,
            comment="or how long after `written` it is to run, in ms",
        ),
        column(
            "written", BigInteger(), NowMs(),
            comment="when the statement ran that set at_ms or delay_ms",
        ),
        column(
            "due", BigInteger(), nullable=True,
            comment="when it is due on Redis's clock, as last relayed or written back; NULL: at_ms "
            "or delay_ms are not relayed yet",
        ),
        column("retry_times", Integer(), 0, comment="how many attempts were made before"),
        column(
            "message", long_text(), nullable=True,
            comment="why the last attempt failed, or why the row was refused",
        ),
        column(
            "todo", SmallInteger(), SyncState.RELAY,
            comment="1 to be relayed, 2 to be rebuilt, 3 waits for its id, 0 nothing to do",
        ),
        column(
            "stamp", BigInteger(), 0,
            comment="the number of the pass that last carried this row",
        ),
        column(
            "slot", SmallInteger(), nullable=True,
            comment="the partition of the id; filled by the relay",
        ),
        Column(
            "planned", BigInteger(), Computed(_PLANNED, persisted=True),
            comment="the due time by which the relay takes it; 0: at once",
        ),
        column("created", BigInteger(), NowMs(), comment="when this life of the id was inserted"),
        column("modified", BigInteger(), NowMs(), comment="when the row was last changed"),
        CheckConstraint("wanted IN ('none', 'cancelled')", name="expirebridge_task_wanted"),
        CheckConstraint("decided IN ('deadline', 'signal')", name="expirebridge_task_decided"),
        CheckConstraint("status IN (1, 10, 20, 30)", name="expirebridge_task_status"),
        CheckConstraint("todo IN (0, 1, 2, 3)", name="expirebridge_task_todo_known"),
        CheckConstraint(
            "(at_ms IS NULL) <> (delay_ms IS NULL)", name="expirebridge_task_one_time"
        ),
        *_indices(),
        **INNODB,
    )  # fmt: skip


def _indices() -> list[Index]:
    """For the relay, the lookup by ext_string, and retention; partial where that is supported."""

    def index(name: str, *columns: str, only: str) -> Index:
        return Index(
            f"expirebridge_task_{name}",
            *columns,
            postgresql_where=text(only),
            sqlite_where=text(only),
        )

    return [
        index("todo", "ledger", "todo", "slot", "planned", only="todo > 0"),
        index("stamp", "ledger", "stamp", only="stamp > 0"),
        index("ext", "ledger", "ext_string", only="ext_string IS NOT NULL"),
        index("ended", "ledger", "status", "modified", only="status > 1"),
    ]


def pass_table(metadata: MetaData) -> Table:
    """`expirebridge_pass`: the relay's progress, with the batch numbers of each partition."""
    return Table(
        NAMES[1],
        metadata,
        column("ledger", ascii_(LONGEST_NAME), primary_key=True, comment="its name"),
        column(
            "partition", SmallInteger(), primary_key=True, autoincrement=False,
            comment="the partition whose passes are counted",
        ),
        column("number", BigInteger(), 0, comment="the last number taken"),
        column(
            "stamp", BigInteger(), 0,
            comment="the highest stamp ever given to a row: rows are pruned, this is kept",
        ),
        column(
            "nonce", ascii_(64),
            comment="binds ledger and Redis: Redis holds the same, or the relay stops",
        ),
        column(
            "met", long_text(), nullable=True,
            comment="where and as what both databases were met: a JSON object; the relay stops if "
            "both change at once",
        ),
        **INNODB,
    )  # fmt: skip


def schema_table(metadata: MetaData) -> Table:
    """`expirebridge_schema`: the version of the tables, and which database this is."""
    return Table(
        NAMES[2],
        metadata,
        column(
            "version", Integer(), primary_key=True, autoincrement=False,
            comment="the version of these tables",
        ),
        column(
            "identity", ascii_(32), RandomId(),
            comment="drawn when they were created: tells this database from another",
        ),
        **INNODB,
    )  # fmt: skip


def series_table(metadata: MetaData) -> Table:
    """`expirebridge_series`: what recurs, and the time of its latest tick. Ticks are tasks."""
    return Table(
        NAMES[3],
        metadata,
        column(
            "ledger", ascii_(LONGEST_NAME), DEFAULT_NAME, primary_key=True, comment="its name"
        ),
        column(
            "id", ascii_(LONGEST_ID), primary_key=True,
            comment="its id; that of a tick is <id>@<ms>",
        ),
        column("func", ascii_(LONGEST_FUNC), comment="the handler: module.function"),
        column(
            "params", long_text(), comment="its arguments: a JSON array, or an object of keywords"
        ),
        column(
            "options", long_text(), nullable=True,
            comment="tags and policies of its ticks, as in expirebridge_task",
        ),
        column("schedule", long_text(), comment="when it has its ticks: a JSON object"),
        column("fingerprint", ascii_(32), comment="of all of the above"),
        column("made", BigInteger(), NowMs(), comment="when it was made: intervals count from it"),
        column("tick", BigInteger(), comment="the time for which its latest tick stands"),
        column(
            "due", BigInteger(),
            comment="when that tick is due: later by the jitter; then the next one is made",
        ),
        column(
            "paused", BigInteger(), nullable=True,
            comment="since when it makes no ticks; NULL: it does",
        ),
        Index("expirebridge_series_due", "ledger", "due"),
        **INNODB,
    )  # fmt: skip

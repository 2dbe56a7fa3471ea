"""The statements of producers, built once for each dialect."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ClauseElement,
    ColumnElement,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    null,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.sql.elements import Grouping

from expirebridge.ledger.rows import Decided, DesiredState, Status, SyncState
from expirebridge.ledger.series_ticks import NEVER
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.sql_types import NowMs
from expirebridge.task.keys import ERASED

GIVEN: Final = (
    "ledger", "id", "func", "params", "options", "ext_string", "at_ms", "delay_ms",
)  # fmt: skip
"""The columns that a new task gives; the others have their defaults."""
OF_SERIES: Final = ("func", "params", "options", "schedule", "fingerprint", "tick", "due")
"""The columns that a series gives."""
_WAITING: Final = Status.WAITING.value  # drivers may not know enums
_RELAY, _REBUILD = SyncState.RELAY.value, SyncState.REBUILD.value
_ERASED = ERASED.decode()
_UPSERTS: Final = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of a producer for one dialect."""

    insert: ClauseElement
    """A task with a random id."""
    make: ClauseElement
    """A task with an id that a finished one may have. It changes no row if an unfinished one has
    it; in MySQL it fails with a duplicate key then, and `take` follows."""
    replace: ClauseElement
    """The same, also if an unfinished one has the id: it never fails."""
    take: ClauseElement
    """Put the new task in the place of a finished one (MySQL)."""
    cancel: ClauseElement
    cancel_ext: ClauseElement
    move: ClauseElement
    move_ext: ClauseElement
    erase: ClauseElement
    erase_ext: ClauseElement
    get: ClauseElement
    get_to_signal: ClauseElement
    """As `get`; it locks the row."""
    signal: ClauseElement
    find: ClauseElement
    complete: ClauseElement
    schema: ClauseElement
    clock: ClauseElement
    series_get: ClauseElement
    """It locks the row, so that its next tick is not made meanwhile."""
    series_insert: ClauseElement
    """It inserts nothing if there is such a series; in MySQL it fails with a duplicate key."""
    series_change: ClauseElement
    series_delete: ClauseElement
    series_pause: ClauseElement
    series_resume: ClauseElement
    series_show: ClauseElement
    """A series with its ticks, as `series_rows.series_of` reads it; it locks nothing."""
    series_list: ClauseElement


@lru_cache
def statements(tables: Tables, dialect: str) -> Statements:
    """The statements for a dialect, by its name."""
    task = tables.task
    cancel, move = _cancel(task), _move(task)
    by_id = task.c.id == bindparam("b_id")
    by_ext = task.c.ext_string == bindparam("b_ext")
    plain = insert(task).values(_given())
    every = select(*task.c, NowMs().label("now")).where(_this_ledger(task))
    upsert = _UPSERTS.get(dialect)
    return Statements(
        insert=plain,
        make=plain if upsert is None else _upsert(upsert, task, only=_finished(task)),
        replace=_mysql_replace(task) if upsert is None else _upsert(upsert, task, only=None),
        take=_take(task),
        cancel=cancel.where(by_id),
        cancel_ext=cancel.where(by_ext),
        move=move.where(by_id),
        move_ext=move.where(by_ext),
        erase=_erase(task).where(by_id),
        erase_ext=_erase(task).where(by_ext),
        get=every.where(by_id),
        get_to_signal=every.where(by_id).with_for_update(),
        signal=_signal(task).where(by_id),
        find=every.where(by_ext).order_by(task.c.created, task.c.id).limit(bindparam("b_limit")),
        complete=_complete(task),
        schema=select(tables.schema.c.version, tables.schema.c.identity)
        .order_by(tables.schema.c.version.desc())
        .limit(1),
        clock=select(NowMs().label("now")),
        **_of_series(tables, upsert),
    )


def _of_series(tables: Tables, upsert: Any) -> dict[str, ClauseElement]:
    """The statements about series."""
    series = tables.series
    ledger: BindParameter[str] = bindparam("b_ledger")
    this = (series.c.ledger == bindparam("b_ledger"), series.c.id == bindparam("b_id"))
    given: dict[str, Any] = {name: bindparam(f"b_{name}") for name in OF_SERIES}
    new = given | {name: bindparam(f"b_{name}") for name in ("ledger", "id", "made")}
    plain = insert(series).values(new)
    return {
        "series_get": select(*series.c, NowMs().label("now")).where(*this).with_for_update(),
        "series_insert": plain
        if upsert is None
        else upsert(series).values(new).on_conflict_do_nothing(),
        "series_change": update(series).where(*this).values(given),
        "series_delete": delete(series).where(*this),
        "series_pause": update(series).where(*this).values(paused=NowMs(), due=NEVER),
        "series_resume": update(series)
        .where(*this)
        .values(paused=null(), tick=bindparam("b_tick"), due=bindparam("b_due")),
        "series_show": _series_query(tables, ledger).where(series.c.id == bindparam("b_id")),
        "series_list": _page_query(
            tables, ledger, (bindparam("b_due"), bindparam("b_id")), bindparam("b_limit")
        ),
    }


def _given() -> dict[str, Any]:
    return {name: bindparam(f"b_{name}") for name in GIVEN}


def _this_ledger(task: Table) -> ColumnElement[bool]:
    return task.c.ledger == bindparam("b_ledger")


def _finished(task: Table) -> ColumnElement[bool]:
    return task.c.status != _WAITING


def _relayed_again(task: Table) -> dict[str, Any]:
    """The columns that each change by the application sets. A row to be rebuilt stays one."""
    return {
        "revision": task.c.revision + 1,
        "todo": case((task.c.todo == _REBUILD, _REBUILD), else_=_RELAY),
        "modified": NowMs(),
    }


def _new_life(task: Table) -> dict[str, Any]:
    """The columns set when a new task takes an id, beside the given ones. The stamp stays: if Redis
    loses the older task, the row has to be rebuilt."""
    last = task.c.generation
    return _relayed_again(task) | {
        "generation": case((last >= NowMs(), last + 1), else_=NowMs()),
        "wanted": DesiredState.NONE.value,
        "status": _WAITING,
        "decided": null(),
        "written": NowMs(),
        "created": NowMs(),
        "due": null(),
        "retry_times": 0,
        "message": null(),
    }


def _upsert(upsert: Any, task: Table, *, only: ColumnElement[bool] | None) -> ClauseElement:
    statement = upsert(task).values(_given())
    taken = {name: statement.excluded[name] for name in GIVEN if name not in {"ledger", "id"}}
    made: ClauseElement = statement.on_conflict_do_update(
        index_elements=[task.c.ledger, task.c.id], set_=taken | _new_life(task), where=only
    )
    return made


def _mysql_replace(task: Table) -> ClauseElement:
    """One statement: an INSERT that fails leaves a shared lock, and an UPDATE after it can be in a
    deadlock with the relay's."""
    statement = mysql.insert(task).values(_given())
    taken = {name: statement.inserted[name] for name in GIVEN if name not in {"ledger", "id"}}
    made: ClauseElement = statement.on_duplicate_key_update(taken | _new_life(task))
    return made


def _take(task: Table) -> Update:
    given = {name: value for name, value in _given().items() if name not in {"ledger", "id"}}
    return (
        update(task)
        .values(given | _new_life(task))
        .where(_this_ledger(task), task.c.id == bindparam("b_id"), _finished(task))
    )


def _unfinished(task: Table) -> Update:
    return update(task).where(
        _this_ledger(task), task.c.status == _WAITING, task.c.wanted == DesiredState.NONE.value
    )


def _cancel(task: Table) -> Update:
    return _unfinished(task).values(_relayed_again(task) | {"wanted": DesiredState.CANCELLED.value})


def _move(task: Table) -> Update:
    return _unfinished(task).values(
        _relayed_again(task)
        | {
            "at_ms": bindparam("b_at_ms"),
            "delay_ms": bindparam("b_delay_ms"),
            "written": NowMs(),
            "due": null(),
        }
    )


def _signal(task: Table) -> Update:
    """The task is due at once, unless it is paused: then it stays so."""
    new: dict[str, Any] = {name: bindparam(f"b_{name}") for name in ("func", "options", "written")}
    return (
        _unfinished(task)
        .where(
            task.c.decided.is_(None),
            task.c.generation == bindparam("b_generation"),
            task.c.revision == bindparam("b_revision"),
        )
        .values(
            _relayed_again(task)
            | new
            | {
                "decided": Decided.SIGNAL.value,
                "at_ms": null(),
                "delay_ms": 0,
                "due": case((task.c.due == NEVER, NEVER), else_=null()),
            }
        )
    )


def _erase(task: Table) -> Update:
    """The relay then replaces the task in Redis by the erased one."""
    return (
        update(task)
        .values(_relayed_again(task) | {"params": _ERASED, "options": null(), "message": null()})
        .where(_this_ledger(task), _finished(task), task.c.params != _ERASED)
    )


def _complete(task: Table) -> Update:
    return (
        update(task)
        .values(
            status=Status.SUCCEEDED.value, retry_times=bindparam("b_retry_times"), modified=NowMs()
        )
        .where(
            _this_ledger(task),
            task.c.id == bindparam("b_id"),
            task.c.status == _WAITING,
            task.c.wanted == DesiredState.NONE.value,
            task.c.generation == bindparam("b_generation"),
            task.c.revision == bindparam("b_revision"),
        )
    )


# Series, with what became of their ticks.


def _series_query(made: Tables, ledger: ColumnElement[str]) -> Select[Any]:
    """The series of a ledger, each beside the row of its latest tick, and of the last one that was
    due. The ids of both are found in the primary key."""
    series, waiting, last = made.series, made.task.alias("waiting"), made.task.alias("last")
    latest = and_(
        waiting.c.ledger == series.c.ledger, waiting.c.id == _id_of_tick(series, series.c.tick)
    )
    before = and_(last.c.ledger == series.c.ledger, last.c.id == _id_of_last(made))
    return (
        select(
            *series.c,
            _moved_now().label("now"),
            waiting.c.status.label("waiting_status"),
            waiting.c.wanted.label("waiting_wanted"),
            func.coalesce(waiting.c.due, waiting.c.at_ms).label("waiting_due"),
            last.c.id.label("last_id"),
            last.c.status.label("last_status"),
            last.c.modified.label("last_modified"),
        )
        .select_from(series.outerjoin(waiting, latest).outerjoin(last, before))
        .where(series.c.ledger == ledger)
    )


def _id_of_tick(series: Table, at: ColumnElement[Any]) -> ColumnElement[str]:
    """The time is not cast to text: in MySQL that would have a collation, and cost the index."""
    return series.c.id.concat("@").concat(at)


def _moved_now() -> ColumnElement[int]:
    """The database's clock, and how far it is ahead in a test."""
    # In parentheses: in SQLite `||` comes before `+`.
    return Grouping(NowMs() + bindparam("b_ahead", 0, type_=BigInteger))


def _id_of_last(made: Tables) -> ColumnElement[str]:
    series, task = made.series, made.task.alias("tick")
    return (
        select(func.max(task.c.id))
        .where(
            task.c.ledger == series.c.ledger,
            task.c.id > series.c.id.concat("@"),
            task.c.id <= _id_of_tick(series, _moved_now()),
        )
        .correlate(series)
        .scalar_subquery()
    )


def _page_query(
    made: Tables, ledger: ColumnElement[str], after: tuple[Any, Any], limit: Any
) -> Select[Any]:
    """A page of them, those first whose next tick is first, after this due time and id."""
    series = made.series.c
    return (
        _series_query(made, ledger)
        .where(tuple_(series.due, series.id) > tuple_(*after))
        .order_by(series.due, series.id)
        .limit(limit)
    )

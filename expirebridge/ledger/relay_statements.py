"""The relay's statements, and the values that it reads and writes with them.

They are built once: to build one costs more than to send it. Their parameters are `b_ledger`;
`b_partition`, the partition; and what each method of `RelayStore` adds.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Integer,
    Row,
    Select,
    Update,
    and_,
    bindparam,
    case,
    func,
    null,
    select,
    update,
)
from sqlalchemy.types import TypeEngine

from expirebridge.ledger.backlog import BacklogQuery, IsInIndex, PartitionOfRow, constant
from expirebridge.ledger.calls import Lost, RedisCheckpoint
from expirebridge.ledger.many_rows import GivenValues, RowUpdate
from expirebridge.ledger.row_signals import is_open
from expirebridge.ledger.row_writes import passing_over_locks
from expirebridge.ledger.rows import RowVersion, Status, SyncState
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.sql_types import NowMs

# The statements.

_WRITTEN_BACK: Final = (
    "generation",
    "wanted",
    "status",
    "due",
    "retry_times",
    "message",
    "decided",
)
"""The columns that a write-back sets."""

_ledger: BindParameter[str] = bindparam("b_ledger")
_partition: BindParameter[int] = bindparam("b_partition")
_horizon: BindParameter[int] = bindparam("b_horizon", type_=BigInteger)
_most: BindParameter[int] = bindparam("b_most", type_=Integer)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayStatements:
    """The statements of the relay, which all partitions of a layout share."""

    read: Select[Any]
    read_all: Select[Any]
    take: Update
    """Take the number after `b_expected`, while `b_stamp` is the highest that rows have."""
    take_to_stamp: Update
    """The same, and note that rows are stamped with it."""
    page: Select[Any]
    free_page: tuple[Select[Any], ...]
    """The stretches of the page, each without the rows that another transaction has locked."""
    tried_page: tuple[Select[Any], ...]
    """The same without the rows of `b_without`."""
    unsorted: tuple[Select[Any], ...]
    """The rows without a partition that nobody has locked: new ones, and lost ones."""
    turn: Select[Any]
    """Lock one row for all that sort: what one of them has locked, others would pass over."""
    sort: Update
    finish: RowUpdate
    wait_for_id: RowUpdate
    """Keep rows out of pages for a while, since other tasks have their ids."""
    ask_again: Update
    """Relay the rows of `b_ids` again that waited for their ids."""
    waits_for_id: Select[Any]
    """Up to `b_most` rows that do, without those that another transaction has locked."""
    note_met: Update
    """Note of the rows of `b_ids` that Redis has had them, so that they are not kept back."""
    hold: Update
    """Require that `b_number` is the last one taken; none is taken until the transaction ends."""
    hold_to_stamp: Update
    """The same, and note that rows are stamped with it."""
    rows_to_write: Select[Any]
    """The rows of the tasks `b_ids`, locked in the order of their ids. Here and in `free`, rows
    that another transaction has locked are left out."""
    free: Select[Any]
    """The ids of the rows of the tasks `b_ids`, locked in the same order."""
    there: Select[Any]
    """The ids of the rows of the tasks `b_ids`, whoever has them locked."""
    write_back: RowUpdate
    relay_again: Update
    """Relay the rows of `b_ids` again, unless they wait for that."""
    recall: Update
    """Have those of the rows `b_ids` rebuilt whose tasks wait or run."""
    ask: Select[Any]
    waiting: Select[Any]
    """The rows of the tasks `b_ids` that wait to be relayed, and are not kept back."""


@lru_cache
def relay_statements(made: Tables, *, is_single: bool) -> RelayStatements:
    """The statements for a server with one partition, or for one with several."""
    task, passes = made.task.c, made.passes.c
    our_pass = (passes.ledger == _ledger, passes.partition == _partition)
    backlog = BacklogQuery(made.task, _ledger, _horizon)
    # Of one partition, rows need not be sorted first.
    partitions: list[PartitionOfRow] = [None, _partition] if is_single else [_partition]
    some = select(task.id).where(task.ledger == _ledger, _is_one_of_ids(made))
    free_page = _free(backlog, partitions, made.task)
    state = (task.id, task.generation, task.revision, task.status, task.wanted, is_open(made.task))
    return RelayStatements(
        read=_read(made, backlog, partitions, is_single=is_single).where(*our_pass),
        read_all=_read(made, backlog, [passes.partition], is_single=is_single).where(
            passes.ledger == _ledger
        ),
        take=_take(made, "number"),
        take_to_stamp=_take(made, "number", "stamp"),
        page=_with_time(backlog.page(_most, partitions)),
        free_page=tuple(map(_with_time, free_page)),
        tried_page=tuple(_with_time(_tried(made, one)) for one in free_page),
        unsorted=tuple(_tried(made, one) for one in _free(backlog, [None], task.id)),
        turn=_turn(made),
        sort=_sort(made),
        finish=_finish(made),
        wait_for_id=_wait_for_id(made),
        ask_again=_ask_again(made),
        waits_for_id=_waits_for_id(made),
        note_met=_note_met(made),
        hold=_hold(made, "number"),
        hold_to_stamp=_hold(made, "stamp"),
        rows_to_write=passing_over_locks(
            some.with_only_columns(*state, task.due, task.decided).order_by(task.id)
        ),
        free=passing_over_locks(some.order_by(task.id)),
        there=some,
        write_back=_write_back(made),
        relay_again=_relay_again(made),
        recall=_recall(made),
        ask=some.with_only_columns(*state, task.message, task.todo, task.stamp),
        waiting=_waiting(made),
    )


def _is_one_of_ids(made: Tables) -> ColumnElement[bool]:
    return made.task.c.id.in_(bindparam("b_ids", expanding=True))


def _read(
    made: Tables, backlog: BacklogQuery, partitions: list[PartitionOfRow], *, is_single: bool
) -> Select[Any]:
    """The relay's progress, the version of the tables, and whether rows wait."""
    passes = made.passes.c
    unsorted: list[PartitionOfRow] = [] if is_single else [None]
    version = select(func.max(made.schema.c.version)).scalar_subquery()
    return select(
        passes.partition, passes.number, passes.stamp, passes.nonce, version.label("version"),
        backlog.any(partitions, SyncState.RELAY).label("relays"),
        backlog.any(partitions, SyncState.REBUILD).label("rebuilds"),
        backlog.any(unsorted, SyncState.RELAY).label("new"),
        backlog.any(unsorted, SyncState.REBUILD).label("lost"),
    )  # fmt: skip


def _free(
    backlog: BacklogQuery, partitions: list[PartitionOfRow], *columns: Any
) -> list[Select[Any]]:
    """The stretches of a page, new rows first, without rows that another transaction has locked."""
    return [
        passing_over_locks(backlog.first(_most, *columns, partition=partition, todo=todo))
        for todo in (SyncState.RELAY, SyncState.REBUILD)
        for partition in partitions
    ]


def _waiting(made: Tables) -> Select[Any]:
    """Rows to relay, by their ids."""
    task = made.task.c
    near = task.planned <= NowMs() + _horizon
    mine = (task.ledger == _ledger, _is_one_of_ids(made))
    return _with_time(select(made.task).where(*mine, task.todo == constant(SyncState.RELAY), near))


def _tried(made: Tables, page: Select[Any]) -> Select[Any]:
    """The same rows, without those that the database refused to write a moment ago."""
    return page.where(made.task.c.id.not_in(bindparam("b_without", expanding=True)))


def _with_time(page: Select[Any]) -> Select[Any]:
    """The same rows, with the time at which they were read."""
    return page.add_columns(NowMs().label("now"))


def _version_types(made: Tables) -> dict[str, TypeEngine[Any]]:
    task = made.task.c
    return {
        "b_id": task.id.type, "b_generation": task.generation.type,
        "b_revision": task.revision.type,
    }  # fmt: skip


def _is_version(made: Tables, given: GivenValues) -> ColumnElement[bool]:
    """True for the row of this id that has not changed since it was read."""
    task = made.task.c
    return and_(
        task.ledger == _ledger,
        task.id == given["b_id"],
        task.generation == given["b_generation"],
        task.revision == given["b_revision"],
    )


def _finish(made: Tables) -> RowUpdate:
    """Stamp relayed rows that have not changed since."""
    task = made.task.c
    planned = func.coalesce(task.at_ms, task.written + task.delay_ms)
    status, due, message = task.status.type, task.due.type, task.message.type
    values = {"b_status": status, "b_becomes": status, "b_due": due, "b_message": message}

    def where(given: GivenValues) -> ColumnElement[bool]:
        return and_(_is_version(made, given), task.status == given["b_status"])

    def changes(given: GivenValues) -> dict[str, ColumnElement[Any]]:
        is_refused = given["b_message"].is_not(None)
        return {
            "todo": constant(SyncState.NOTHING), "stamp": bindparam("b_number"),
            "slot": _partition,
            "due": func.coalesce(given["b_due"], task.due, planned),
            "status": given["b_becomes"],
            "message": func.coalesce(given["b_message"], task.message),
            "modified": case((is_refused, NowMs()), else_=task.modified),
        }  # fmt: skip

    return RowUpdate(made.task, _version_types(made) | values, where=where, changes=changes)


def _wait_for_id(made: Tables) -> RowUpdate:
    """Leave alone for now rows that have not changed since."""
    task = made.task.c

    def where(given: GivenValues) -> ColumnElement[bool]:
        # One that is to be rebuilt would hold up all others.
        waits = task.todo.in_([constant(SyncState.RELAY), constant(SyncState.REBUILD)])
        return and_(_is_version(made, given), waits)

    def changes(given: GivenValues) -> dict[str, ColumnElement[Any]]:
        return {"todo": constant(SyncState.TAKEN), "message": given["b_message"]}

    values = _version_types(made) | {"b_message": task.message.type}
    return RowUpdate(made.task, values, where=where, changes=changes)


def _waits_for_id(made: Tables) -> Select[Any]:
    task = made.task.c
    waits = (task.todo == constant(SyncState.TAKEN), IsInIndex(task.todo))
    return passing_over_locks(select(task.id).where(task.ledger == _ledger, *waits).limit(_most))


def _ask_again(made: Tables) -> Update:
    task = made.task
    some = (task.c.ledger == _ledger, _is_one_of_ids(made), task.c.todo == SyncState.TAKEN)
    return update(task).where(*some).values(todo=SyncState.RELAY, message=null())


def _note_met(made: Tables) -> Update:
    task = made.task
    some = (task.c.ledger == _ledger, _is_one_of_ids(made), task.c.stamp == 0)
    return update(task).where(*some).values(stamp=1)


def _relay_again(made: Tables) -> Update:
    task = made.task
    some = (task.c.ledger == _ledger, _is_one_of_ids(made), task.c.todo == SyncState.NOTHING)
    return update(task).where(*some).values(todo=SyncState.RELAY)


def _sort(made: Tables) -> Update:
    task = made.task.c
    some = (task.ledger == _ledger, task.slot.is_(None), _is_one_of_ids(made))
    return update(made.task).where(*some).values(slot=_partition)


def _recall(made: Tables) -> Update:
    waits = made.task.c.status == Status.WAITING
    return _relay_again(made).where(waits).values(todo=SyncState.REBUILD)


def _turn(made: Tables) -> Select[Any]:
    passes = made.passes.c
    ours = (passes.ledger == _ledger, passes.partition == 0)
    return select(passes.number).where(*ours).with_for_update()


def _take(made: Tables, *columns: str) -> Update:
    passes = made.passes.c
    following = bindparam("b_expected", type_=BigInteger) + 1
    return (
        update(made.passes)
        .where(
            passes.ledger == _ledger, passes.partition == _partition,
            passes.number == bindparam("b_expected"), passes.stamp == bindparam("b_stamp"),
        )
        .values(dict.fromkeys(columns, following))
    )  # fmt: skip


def _hold(made: Tables, column: str) -> Update:
    passes = made.passes.c
    number: BindParameter[int] = bindparam("b_number", type_=BigInteger)
    return (
        update(made.passes)
        .where(passes.ledger == _ledger, passes.partition == _partition, passes.number == number)
        .values({column: number})
    )


def _write_back(made: Tables) -> RowUpdate:
    """Write the states of tasks into their rows."""
    task = made.task.c

    def where(given: GivenValues) -> ColumnElement[bool]:
        return and_(task.ledger == _ledger, task.id == given["b_id"])

    def changes(given: GivenValues) -> dict[str, ColumnElement[Any]]:
        written = {column: given[f"b_{column}"] for column in _WRITTEN_BACK}
        return {**written, "stamp": bindparam("b_number"), "modified": NowMs()}

    values = {f"b_{name}": task[name].type for name in ("id", *_WRITTEN_BACK)}
    return RowUpdate(made.task, values, where=where, changes=changes)


# The values that the relay reads from the tables, and writes there.

REFUSED: Final = "refused: "
"""The beginning of the message of a refused row."""


class RelayProgress(NamedTuple):
    """The relay's progress in one partition, as SQL has it."""

    number: int
    stamp: int
    nonce: str
    met: str | None
    """The addresses and identities of both sides: see `binding.Met`."""


class RelayState(NamedTuple):
    """The relay's state in one partition, as SQL has it."""

    number: int
    """The last batch number that was taken."""
    stamp: int
    """The highest batch number that was ever given to a row."""
    nonce: str
    """The pairing id of ledger and server."""
    waiting: bool
    """True if a row waits for the relay."""
    rebuilding: bool
    """True if one of them is to be rebuilt."""
    unsorted: bool
    """True if a waiting row has no partition yet."""

    def agrees_with(self, checkpoint: RedisCheckpoint) -> bool:
        """True if neither side lost anything, or the rows are known that the server lacks.

        The server has seen each batch that stamped rows, and SQL each batch that the server saw.
        Rows that it lacks are to be rebuilt, or have a stamp in `checkpoint.unmarked`.
        """
        is_ours = self.nonce == checkpoint.nonce
        return is_ours and self.stamp <= checkpoint.number <= self.number


class RowBatch(NamedTuple):
    """Rows to be relayed."""

    number: int
    """The number of the batch, which was taken for it."""
    rows: Sequence[Row[Any]]
    now: int
    """The database's time, in ms."""
    unmarked: Lost | None = None
    """What the server lost, if some of these rows are not marked: they are locked, or refused."""


class RowResult(NamedTuple):
    """The result of a row that was relayed."""

    row: Row[Any]
    due: int | None
    """The due time of its task, in ms; None: as it was."""
    refusal: str | None = None
    """Why it was refused, if it was."""
    waits: bool = False
    """True if it is not refused, but waits until that is no more."""


class WrittenRows(NamedTuple):
    """What became of the rows that a batch was to write."""

    number: int
    """The number of the batch."""
    locked: Collection[str]
    """Ids of rows that were passed over, since another transaction has them locked."""
    refused: Mapping[str, str]
    """Ids of rows that the database refuses to write, each with what it said."""


class StatusUpdate(NamedTuple):
    """The new state of a row, written back from its task."""

    id: str
    version: RowVersion
    status: Status
    due: int | None
    retry_times: int
    message: str | None
    runs: bool
    """True if its task runs."""
    cancelling: bool
    """True if no further attempt is to follow the one that runs."""

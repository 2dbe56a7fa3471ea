"""The calls that move tasks to another database, a batch at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from expirebridge.store.record_values import text
from expirebridge.task.calls.call import (
    CHUNK,
    Argument,
    At,
    ByItem,
    Command,
    Everywhere,
    OfId,
    by_id,
    milliseconds,
    new_nonce,
    rows_of,
    script,
)
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.task import State

T = TypeVar("T")

SERIES = "series"
LANES = "lanes"
"""Failed tasks that keep ordered lanes waiting."""
BATCH_TASKS = 200
"""Tasks that are examined for a batch: packing them takes the server a millisecond or two."""


@dataclass(frozen=True, slots=True)
class MigrationItem:
    """A task, or a series, in transit."""

    id: str
    is_series: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class MigrationBatch:
    """Tasks and series of one partition, packed to be moved."""

    number: int
    """0 if nothing was packed."""
    has_listeners: bool
    """True if live listeners there run what is due soon."""
    skip: int | None
    """How many to skip next time; None if there are no more."""
    forgotten: bool
    """True if the database lost the record of batches that arrived: it has their tasks again."""
    has_ordered: bool
    """True if of the tasks that were examined some of ordered lanes may still be there."""
    items: list[MigrationItem]


class MigrationResult(IntEnum):
    """The result of one item in the new database."""

    HERE = 1
    STAYS = 2  # the database has another task of this id, which stays
    BEFORE = 3  # the batch arrived before


def begin_receiving(source: str) -> Command[None]:
    """Let this database receive the tasks of another. Raises MoveRefused."""
    return script("begin_arrival", source, read=lambda _: None, route=Everywhere(lambda _: None))


def begin_move(target: str) -> Command[list[str]]:
    """Begin, or resume, to move tasks: the nonce of each partition. Raises MoveRefused."""
    return script(
        "begin_move", target, new_nonce(),
        read=lambda reply: [text(reply)], route=Everywhere(_chained),
    )  # fmt: skip


def _chained(lists: list[list[T]]) -> list[T]:
    return [one for each in lists for one in each]


def read_holds_and_weights() -> Command[list[bytes]]:
    """Read holds, weights and numbers of all partitions, for `receive_holds_and_weights`."""
    return script("read_holds_and_weights", read=list, route=Everywhere(_chained))


def receive_holds_and_weights(nonce: str, found: Sequence[bytes]) -> Command[None]:
    """Receive those of another database, once for each move; what is here already stays.

    If two partitions there have the same one, that of the first counts. Raises MoveRefused if the
    move was ended meanwhile.
    """
    return script(
        "receive_holds_and_weights", nonce, *found,
        read=lambda _: None, route=Everywhere(lambda _: None),
    )  # fmt: skip


def pack_batch(
    partition: int, nonce: str, arrived: int, lease: float, what: State | str, skip: int
) -> Command[MigrationBatch]:
    """Pack tasks of one partition; if a batch is in transit from there, return that one."""
    return script(
        "pack_batch", nonce, arrived, milliseconds(lease), what, skip, BATCH_TASKS,
        read=_read_batch, route=At(partition),
    )  # fmt: skip


def _read_batch(reply: list[Any]) -> MigrationBatch:
    number, has_listeners, skip, forgotten, ordered, *rest = reply
    return MigrationBatch(
        number=number,
        has_listeners=bool(has_listeners),
        skip=skip if skip >= 0 else None,
        forgotten=bool(forgotten),
        has_ordered=bool(ordered),
        items=[
            MigrationItem(text(id), bool(series), content)
            for id, series, content in rows_of(rest, 3)
        ],
    )


def receive_batch(
    nonce: str, number: int, items: Sequence[MigrationItem]
) -> Command[list[MigrationResult]]:
    """Receive the items of a batch. Raises MoveRefused if the move was ended meanwhile."""
    return script(
        "receive_batch", nonce, number, *(item.content for item in items),
        read=lambda reply: [MigrationResult(code) for code in reply],
        route=ByItem(items, lambda item: item.id, lambda part: receive_batch(nonce, number, part)),
    )  # fmt: skip


def drop_batch(partition: int, nonce: str, number: int) -> Command[None]:
    """Forget a batch that has arrived."""
    return script("drop_batch", nonce, number, read=lambda _: None, route=At(partition))


def last_received(nonce: str) -> Command[int]:
    """Read the number of the last batch of a move that has arrived."""
    return script("read_arrivals", nonce, read=int, route=Everywhere(max))


def open_lanes() -> Command[None]:
    """Let tasks begin in ordered lanes: those of the other database have arrived."""
    return script("open_lanes", read=lambda _: None, route=Everywhere(lambda _: None))


def end_receiving() -> Command[None]:
    """Note that everything has arrived."""
    return script("end_arrival", read=lambda _: None, route=Everywhere(lambda _: None))


# The calls that read tasks whole, and find out which of them another database has.


@dataclass(frozen=True, slots=True)
class Stored:
    """A task as it is stored."""

    id: str
    key: bytes
    """The name of its trigger key."""
    due: int
    """Its due time, in ms; of a paused one, as if it were resumed now."""
    fields: dict[str, bytes]
    """Its record."""


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A part of the tasks of one state."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    tasks: list[Stored]


def stored_page(state: State, cursor: str) -> Command[StoredPage]:
    """Read the tasks of a state whole, a page at a time; see list.lua."""
    return script(
        "list", state, "", "", cursor, CHUNK, "",
        read=lambda reply: StoredPage(reply[0].decode(), [_stored(row) for row in reply[2:]]),
    )  # fmt: skip


def _stored(row: Sequence[Any]) -> Stored:
    id, key, _, due, columns = row
    names = map(text, columns[::2])
    return Stored(text(id), key, due, dict(zip(names, columns[1::2], strict=True)))


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is stored."""

    name: str
    fields: dict[str, bytes]
    """Its hash."""
    members: bytes
    """What it knows of its members: see groups.lua."""
    follow_up: Stored | None
    """Its follow-up, if that is paused."""


@dataclass(frozen=True, slots=True)
class StoredGroupPage:
    """A part of the groups."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    groups: list[StoredGroup]


_BATCH_GROUPS = 20
"""What is known of the members of a large group takes 25 KB."""


def stored_groups(cursor: str) -> Command[StoredGroupPage]:
    """Read groups whole, a page at a time."""
    return script(
        "read_groups", cursor, _BATCH_GROUPS,
        read=lambda reply: StoredGroupPage(
            text(reply[0]), [_stored_group(*row) for row in rows_of(reply[1:], 4)]
        ),
    )  # fmt: skip


def _stored_group(
    name: bytes, columns: Sequence[bytes], members: bytes, follow_up: Sequence[Any] | None
) -> StoredGroup:
    fields = dict(zip(map(text, columns[::2]), columns[1::2], strict=True))
    return StoredGroup(text(name), fields, members, _stored(follow_up) if follow_up else None)


class RestoreGroupCode(IntEnum):
    """The result of restoring a group."""

    MADE = 1
    THERE = 2  # there is a group of that name, which stays
    TAKEN = 3  # an unfinished task has the id of its follow-up


def restore_group(
    name: str, members: bytes, fields: Mapping[str, Argument], follow_up: NewTask | None
) -> Command[RestoreGroupCode]:
    """Make a group as it was elsewhere, with its follow-up, if that is to be paused."""
    pairs = [item for pair in fields.items() for item in pair]
    item = follow_up.encode() if follow_up is not None else ()
    return script(
        "restore_group", name, members, len(fields), *pairs, *item,
        read=RestoreGroupCode, route=OfId(name),
    )  # fmt: skip


def restore_slots(lanes: Mapping[str, Sequence[str]]) -> Command[None]:
    """Give imported tasks, by id, the slots of ordered lanes that they kept elsewhere."""
    items = [item for id, names in lanes.items() for item in (id, "\n".join(names))]
    return script("restore_slots", *items, read=lambda _: None, route=Everywhere(lambda _: None))


def find_known(ids: Sequence[str]) -> Command[list[bool]]:
    """Ask which ids have a record, whatever their state."""
    return script(
        "find_known", *ids, read=lambda reply: [bool(one) for one in reply],
        route=by_id(ids, find_known),
    )  # fmt: skip


def note_import(source: str, *, look_only: bool) -> Command[tuple[int, int]]:
    """Note that an import from a source begins, or only ask whether one ever did.

    Returns the server's time, and when an earlier import from there began, both in ms; 0 if there
    was none.
    """
    nonce = "" if look_only else new_nonce()
    return script("note_import", source, nonce, read=lambda reply: (reply[0], reply[1]))

"""The calls that move tasks to another database, a parcel at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from expirebridge.model.task import State
from expirebridge.store.commands.call import (
    BATCH,
    At,
    ByItem,
    Command,
    Everywhere,
    by_id,
    milliseconds,
    new_nonce,
    rows_of,
    script,
)
from expirebridge.store.task_records import text

SERIES = "series"
PARCEL = 200
"""Tasks that are looked at for a parcel: to pack them takes the server a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Item:
    """A task, or a series, on its way."""

    id: str
    is_series: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class MigrationBatch:
    """What was packed in one partition."""

    number: int
    """0 if nothing was packed."""
    attended: bool
    """Whether listeners beat there, and so run what is due soon."""
    skip: int | None
    """How many to pass over next time; None if there are no more."""
    forgotten: bool
    """Whether the database has forgotten parcels that arrived: what was in them is there again."""
    items: list[Item]


class MigrationResult(IntEnum):
    """What became of an item where it was moved to."""

    HERE = 1
    STAYS = 2  # the database has another task of this id, which stays
    BEFORE = 3  # the parcel arrived before


def begin_arrival(source: str) -> Command[None]:
    """Let tasks of another database arrive. Raises MoveRefused."""
    return script("begin_arrival", source, read=lambda _: None, route=Everywhere(lambda _: None))


def begin_move(target: str) -> Command[list[str]]:
    """Begin, or resume, to move tasks: the nonce of each partition. Raises MoveRefused."""
    return script(
        "begin_move", target, new_nonce(),
        read=lambda reply: [text(reply)], route=Everywhere(_chained),
    )  # fmt: skip


def _chained(lists: list[list[str]]) -> list[str]:
    return [one for each in lists for one in each]


def pack_parcel(
    partition: int, nonce: str, arrived: int, lease: float, what: State | str, skip: int
) -> Command[MigrationBatch]:
    """Pack tasks of one partition; if a parcel is on its way from there, it is that one."""
    return script(
        "pack_parcel", nonce, arrived, milliseconds(lease), what, skip, PARCEL,
        read=_read_parcel, route=At(partition),
    )  # fmt: skip


def _read_parcel(reply: list[Any]) -> MigrationBatch:
    number, attended, skip, forgotten, *rest = reply
    return MigrationBatch(
        number=number,
        attended=bool(attended),
        skip=skip if skip >= 0 else None,
        forgotten=bool(forgotten),
        items=[Item(text(id), bool(series), content) for id, series, content in rows_of(rest, 3)],
    )


def receive_parcel(
    nonce: str, number: int, items: Sequence[Item]
) -> Command[list[MigrationResult]]:
    """Receive what a parcel holds. Raises MoveRefused if the move was ended meanwhile."""
    return script(
        "receive_parcel", nonce, number, *(item.content for item in items),
        read=lambda reply: [MigrationResult(code) for code in reply],
        route=ByItem(items, lambda item: item.id, lambda part: receive_parcel(nonce, number, part)),
    )  # fmt: skip


def drop_parcel(partition: int, nonce: str, number: int) -> Command[None]:
    """Forget a parcel that has arrived."""
    return script("drop_parcel", nonce, number, read=lambda _: None, route=At(partition))


def read_arrivals(nonce: str) -> Command[int]:
    """Read the number of the last parcel of a move that has arrived."""
    return script("read_arrivals", nonce, read=int, route=Everywhere(max))


def end_arrival() -> Command[None]:
    """Note that all has arrived."""
    return script("end_arrival", read=lambda _: None, route=Everywhere(lambda _: None))


# The calls that read tasks whole, and find out which of them another database has.


@dataclass(frozen=True, slots=True)
class Stored:
    """A task as it is stored."""

    id: str
    key: bytes
    """The name of its trigger key."""
    due: int
    """When it is due, in ms; of a paused one, if it were resumed now."""
    fields: dict[str, bytes]
    """Its record."""


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A part of the tasks of one state."""

    cursor: str
    """Where the next page begins; "0" if this was the last."""
    tasks: list[Stored]


def stored_page(state: State, cursor: str) -> Command[StoredPage]:
    """Read the tasks of a state whole, a page at a time; see list.lua."""
    return script(
        "list", state, "", "", cursor, BATCH,
        read=lambda reply: StoredPage(reply[0].decode(), [_stored(row) for row in reply[2:]]),
    )  # fmt: skip


def _stored(row: Sequence[Any]) -> Stored:
    id, key, _, due, columns = row
    names = map(text, columns[::2])
    return Stored(text(id), key, due, dict(zip(names, columns[1::2], strict=True)))


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

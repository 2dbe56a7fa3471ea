"""The calls that read tasks whole, and find out which of them another database has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expirebridge.model.task import State
from expirebridge.store.commands.call import BATCH, Call, new_nonce, script
from expirebridge.store.commands.routes import by_id
from expirebridge.store.reading import text


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


def stored_page(state: State, cursor: str) -> Call[StoredPage]:
    """Read the tasks of a state whole, a page at a time; see list.lua."""
    return script(
        "list", state, "", "", cursor, BATCH,
        read=lambda reply: StoredPage(reply[0].decode(), [_stored(row) for row in reply[2:]]),
    )  # fmt: skip


def _stored(row: Sequence[Any]) -> Stored:
    id, key, _, due, columns = row
    names = map(text, columns[::2])
    return Stored(text(id), key, due, dict(zip(names, columns[1::2], strict=True)))


def find_known(ids: Sequence[str]) -> Call[list[bool]]:
    """Ask which ids have a record, whatever their state."""
    return script(
        "find_known", *ids, read=lambda reply: [bool(one) for one in reply],
        route=by_id(ids, find_known),
    )  # fmt: skip


def note_import(source: str, *, look_only: bool) -> Call[tuple[int, int]]:
    """Note that an import from a source begins, or only ask whether one ever did.

    Returns the server's time, and when an earlier import from there began, both in ms; 0 if there
    was none.
    """
    nonce = "" if look_only else new_nonce()
    return script("note_import", source, nonce, read=lambda reply: (reply[0], reply[1]))

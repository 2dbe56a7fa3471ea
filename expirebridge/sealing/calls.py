"""The calls that read what is sealed, as it is stored, and replace it."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from expirebridge.store.record_values import text
from expirebridge.task.calls.call import CHUNK, Argument, ByItem, Command, script
from expirebridge.task.calls.pages import RecordPage
from expirebridge.task.task import State


class Replacement(NamedTuple):
    """One field, what it holds, and what is to replace that."""

    kind: str
    """`task` or `series`."""
    id: str
    field: str
    old: bytes
    new: bytes


def record_page(state: State, cursor: str) -> Command[RecordPage]:
    """Read the records of one state's tasks, a page at a time; see list.lua."""
    return script("list", state, "", "", cursor, CHUNK, "", read=_read_page)


def _read_page(reply: Sequence[Any]) -> RecordPage:
    records = [(text(id), _fields(columns)) for id, _, _, _, columns, *_ in reply[2:]]
    return RecordPage(reply[0].decode(), reply[1], records)


def _fields(columns: Sequence[bytes]) -> Mapping[str, bytes]:
    return {text(columns[at]): columns[at + 1] for at in range(0, len(columns), 2)}


def replace(replacements: Sequence[Replacement]) -> Command[list[bool]]:
    """Replace fields that still hold what was read; whether each did."""
    items: list[Argument] = [item for one in replacements for item in one]
    route = ByItem(replacements, attrgetter("id"), partial(replace))
    return script("reseal", *items, read=lambda reply: [done == 1 for done in reply], route=route)

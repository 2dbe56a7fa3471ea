"""Seals with the first key what was sealed with another one, after keys were changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

from expirebridge.capabilities import given
from expirebridge.sealing import calls
from expirebridge.sealing.calls import Replacement
from expirebridge.store.record_values import funcs_of
from expirebridge.task.calls.call import Command, Steps
from expirebridge.task.calls.pages import Pages, RecordPage
from expirebridge.task.key_ring import (
    Content,
    KeyRing,
    NotOpened,
    key_of,
    replace_in_history,
)
from expirebridge.task.signal_payload import digests_of
from expirebridge.task.task import State

_SealAgain = Callable[[KeyRing, str, Sequence[str], bytes], bytes]
"""Seals a field again, of a task or a series of this id and these functions."""
_AT_ONCE = 512 * 1024
"""Bytes that one request replaces, about."""


class GivesRecords(Protocol):
    """A module with records beside those of tasks, of which fields may be sealed."""

    KIND: str
    """What reseal.lua calls them."""

    def record_page(self, cursor: str) -> Command[RecordPage]:
        """Read them, a page at a time."""
        ...


@dataclass(slots=True)
class Resealed:
    """What a walk over all tasks and series found and did."""

    examined: int = 0
    """Tasks and series that were looked at."""
    resealed: int = 0
    """Fields that were sealed with the first key."""
    changed: int = 0
    """Fields that changed meanwhile, and were left as they are."""
    not_opened: dict[str, int] = field(default_factory=dict)
    """Fields that are not wholly opened, by the name of each key that is missing."""

    @property
    def is_to_repeat(self) -> bool:
        """True if another walk may find more: tasks change their states meanwhile."""
        return bool(self.resealed or self.changed)


def reseal(key_ring: KeyRing) -> Steps[Resealed]:
    """Seal everything with the first key, by one walk over all tasks and series.

    Each field is replaced only if it is still what was read, so this can be interrupted, and
    repeated. A task that changes its state meanwhile may be passed over: walk again until nothing
    is left to do.
    """
    done = Resealed()
    for state in State:
        yield from _reseal(done, key_ring, "task", Pages(partial(calls.record_page, state)))
    for one in cast("tuple[GivesRecords, ...]", given("sealed_records")):
        yield from _reseal(done, key_ring, one.KIND, Pages(one.record_page))
    return done


def _reseal(done: Resealed, key_ring: KeyRing, kind: str, pages: Pages[RecordPage]) -> Steps[None]:
    while page := (yield from pages.next()):
        done.examined += page.examined
        found = [
            one for id, record in page.records for one in _of(done, key_ring, kind, id, record)
        ]
        yield from _replace(done, found)


def _replace(done: Resealed, found: list[Replacement]) -> Steps[None]:
    """Replace fields, in requests that are not too large."""
    while found:
        size, count = 0, 0
        while count < len(found) and (not count or size + len(found[count].new) <= _AT_ONCE):
            size += len(found[count].new)
            count += 1
        replaced = yield from calls.replace(found[:count])
        done.resealed += sum(replaced)
        done.changed += len(replaced) - sum(replaced)
        found = found[count:]


def _of(
    done: Resealed, key_ring: KeyRing, kind: str, id: str, record: Mapping[str, bytes]
) -> Iterator[Replacement]:
    """The fields of one record that are sealed with another key than the first."""
    funcs = funcs_of(record)
    for name, seal_again in _FIELDS.items():
        stored, missing = record.get(name, b""), set[str]()
        again = partial(_if_opened, key_ring, partial(seal_again, key_ring, id, funcs), missing)
        new = replace_in_history(stored, again) if name == "history" else again(stored)
        if new != stored:
            yield Replacement(kind, id, name, stored, new)
        for key in missing:
            done.not_opened[key] = done.not_opened.get(key, 0) + 1
    yield from _digest_of_signal(key_ring, kind, id, record)


def _digest_of_signal(
    key_ring: KeyRing, kind: str, id: str, record: Mapping[str, bytes]
) -> Iterator[Replacement]:
    """What tells a signal from others, if that was made with another key than the first.

    A signal that is not opened is counted with its field.
    """
    stored = record.get("signalled", b"")
    at, _, rest = stored.partition(b" ")
    digest, _, by = rest.partition(b" ")
    name, colon, _ = digest.partition(b":")
    if not colon or name == key_ring.first.encode():
        return
    try:
        said = key_ring.open(record.get("signal", b""), id, Content.SIGNAL)
    except NotOpened:
        return
    new = b" ".join((at, digests_of(said, id, key_ring)[0].encode(), by))
    yield Replacement(kind, id, "signalled", stored, new)


def _if_opened(
    key_ring: KeyRing, seal_again: Callable[[bytes], bytes], missing: set[str], stored: bytes
) -> bytes:
    """Seal again what is sealed with another key than the first.

    If it is not opened, it stays as it is, and `missing` gets the name of its key.
    """
    key = key_of(stored)
    if key is None or key == key_ring.first:
        return stored
    try:
        return seal_again(stored)
    except NotOpened:
        missing.add(key)
        return stored


def _arguments(key_ring: KeyRing, id: str, funcs: Sequence[str], stored: bytes) -> bytes:
    _, space, clear = stored.partition(b" ")
    plain = key_ring.open_arguments(stored, id, *funcs)
    return key_ring.seal_arguments(plain, id, *funcs) + space + clear


def _result(key_ring: KeyRing, id: str, _: Sequence[str], stored: bytes) -> bytes:
    return key_ring.seal(key_ring.open(stored, id, Content.RESULT), id, Content.RESULT)


def _error(key_ring: KeyRing, id: str, _: Sequence[str], stored: bytes) -> bytes:
    plain = key_ring.open(stored.partition(b"\n")[0], id, Content.ERROR)
    return key_ring.seal_error(plain, id)


def _signal(key_ring: KeyRing, id: str, _: Sequence[str], stored: bytes) -> bytes:
    return key_ring.seal(key_ring.open(stored, id, Content.SIGNAL), id, Content.SIGNAL)


def _line(key_ring: KeyRing, id: str, _: Sequence[str], stored: bytes) -> bytes:
    return key_ring.seal_line(key_ring.open(stored, id, Content.ERROR), id)


_FIELDS: dict[str, _SealAgain] = {
    "args": _arguments,
    "result": _result,
    "error": _error,
    "signal": _signal,
    "history": _line,  # each of its lines
}

"""Reads what happened to a task out of its record."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from expirebridge.model.task import HistoryEntry, State, from_ms

_ATTEMPTS = {"retry", "snoozed", "released", "unknown", "lapsed", "rearmed", *State}

_MOVES = {"reschedule", "extend", "put_off", "edit", "beat"}


def history_of(record: Mapping[str, bytes], state: State) -> tuple[HistoryEntry, ...]:
    """All that a record holds, the earliest first: its making, what was noted, its last attempt.

    Lines that cannot be read are left out.
    """
    noted = list(_noted(record.get("history", b"")))
    told = sorted([*_created(record), *noted], key=lambda entry: entry.at)
    for last in _last_attempt(record, state, noted):
        later = (place for place, entry in enumerate(told) if _comes_after(entry, last))
        told.insert(next(later, len(told)), last)
    return tuple(told)


def _comes_after(entry: HistoryEntry, last: HistoryEntry) -> bool:
    """Whether it came after the start, or the end, of the last attempt."""
    if entry.at != last.at or last.what != "started":
        return entry.at > last.at
    # In the millisecond of the start: what moves a task that was not due at any time moves one that
    # runs. One that was paused is resumed, or run now, before it is claimed.
    return entry.what in _MOVES and entry.old_due is None


def _created(record: Mapping[str, bytes]) -> Iterator[HistoryEntry]:
    if made := _moment(record.get("made", b""), unit=1000):
        yield HistoryEntry(at=made, what="created")


def _noted(history: bytes) -> Iterator[HistoryEntry]:
    """The lines that include/history.lua wrote."""
    for line in history.decode(errors="backslashreplace").split("\n"):
        at, what, first, second, times, *rest = [*line.split(" ", 5), "", "", "", ""]
        moment = _moment(at)
        if moment is None or not times.isascii() or not times.isdigit():
            continue
        if what in _ATTEMPTS:
            yield HistoryEntry(
                at=moment, what=what, attempt=_number(first), started=_moment(second),
                times=int(times), error=rest[0],
            )  # fmt: skip
        else:
            yield HistoryEntry(
                at=moment, what=what, old_due=_moment(first), new_due=_moment(second),
                times=int(times),
            )  # fmt: skip


def _last_attempt(
    record: Mapping[str, bytes], state: State, noted: list[HistoryEntry]
) -> Iterator[HistoryEntry]:
    """The attempt at work, or how the task ended. What ended otherwise was noted."""
    started = _moment(record.get("started", b""))
    attempt = _number(record.get("attempt", b""))
    if state is State.RUNNING and started:
        yield HistoryEntry(at=started, what="started", attempt=attempt, started=started)
    if state.finished and (ended := _moment(record.get("ended", b""))):
        error = record.get("error", b"").decode(errors="backslashreplace")
        # A task that was cancelled while it waited ended with no attempt.
        if any(entry.started == started for entry in noted):
            attempt = started = None
        yield HistoryEntry(
            at=ended, what=state, attempt=attempt, started=started,
            error=error.rpartition("\n")[2] if state is not State.SUCCEEDED else "",
        )  # fmt: skip


def _number(stored: bytes | str) -> int | None:
    try:
        return int(stored)
    except ValueError:
        return None


def _moment(stored: bytes | str, unit: int = 1) -> datetime | None:
    ms = _number(stored)
    return None if ms is None else from_ms(ms * unit)

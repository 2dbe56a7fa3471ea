"""The series of a ledger in their rows: written in the caller's transaction, and shown to people.

Only Redis has the time when a tick began, and its lateness.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.ledger.db_errors import is_duplicate
from expirebridge.ledger.rows import FINAL_STATES, DesiredState, Row, Status, options_of
from expirebridge.ledger.series_ticks import NEVER, tick_id, tick_values
from expirebridge.ledger.sql_types import ahead
from expirebridge.ledger.statements import Statements
from expirebridge.ledger.transaction import TransactionAdapter
from expirebridge.series.calls import Times
from expirebridge.series.records import read_schedule
from expirebridge.series.schedule import Schedule, SeriesSpec
from expirebridge.series.ticks import first_after
from expirebridge.series.values import Series, SeriesListing, SeriesOutcome
from expirebridge.task import keys
from expirebridge.task.task import Change, from_ms


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Puts and removes series of one ledger, through one transaction."""

    ledger: str
    adapter: TransactionAdapter
    ours: Statements

    def put(self, spec: SeriesSpec) -> SeriesOutcome:
        """Make a series, or change it, with its next tick."""
        while True:
            row = self._read(spec.id)
            if row is not None:
                return self._change(spec, row)
            if self._make(spec):
                return SeriesOutcome.CREATED

    def pause(self, id: str) -> Change:
        """Let a series make no ticks; its waiting tick is cancelled."""
        row = self._read(id)
        if row is None:
            return Change.NOT_FOUND
        if row["paused"] is None:
            self._drop_waiting(row)
            self.adapter.execute(self.ours.series_pause, {"b_ledger": self.ledger, "b_id": id})
        return Change.PAUSED

    def resume(self, id: str) -> Change:
        """Let a paused series go on, with its first tick from now on.

        Raises InvalidTask if its schedule cannot be read.
        """
        row = self._read(id)
        if row is None:
            return Change.NOT_FOUND
        if row["paused"] is None:
            return Change.RESUMED
        # The watermark never goes back: a tick before it was made, and may run.
        after = max(row["now"], row["tick"] - 1)
        times = first_after(read_schedule(row["schedule"].encode()), id, after, made=row["made"])
        values = {"b_ledger": self.ledger, "b_id": id} | _watermark(times, row["tick"])
        self.adapter.execute(self.ours.series_resume, values)
        self._insert_tick(row, times)
        return Change.RESUMED

    def run(self, id: str) -> str | None:
        """Make one more tick, due now; returns its id, or None if there is no such series."""
        row = self._read(id)
        if row is None:
            return None
        at = row["now"]
        while self._has_task(tick_id(id, at)):
            at += 1
        following = row["due"] if row["now"] < row["due"] < NEVER else None
        self._insert_tick(row, Times(at, row["now"], following, ""))
        return tick_id(id, at)

    def _has_task(self, id: str) -> bool:
        return bool(self.adapter.rows(self.ours.get, {"b_ledger": self.ledger, "b_id": id}))

    def remove(self, id: str) -> Change:
        """Remove a series and its waiting tick."""
        row = self._read(id)
        if row is None:
            return Change.NOT_FOUND
        self.adapter.execute(self.ours.series_delete, {"b_ledger": self.ledger, "b_id": id})
        self._drop_waiting(row)
        return Change.REMOVED

    def _read(self, id: str) -> Mapping[str, Any] | None:
        values = {"b_ledger": self.ledger, "b_id": id}
        rows = self.adapter.rows(self.ours.series_get, values)
        return {**rows[0], "now": rows[0]["now"] + ahead()} if rows else None

    def _make(self, spec: SeriesSpec) -> bool:
        """Make a new series; False if another was faster."""
        [clock] = self.adapter.rows(self.ours.clock, {})
        now = clock["now"] + ahead()
        times = first_after(spec.schedule, spec.id, now, made=now)
        values = self._values(spec) | _watermark(times, now) | {"b_made": now}
        try:
            if not self.adapter.execute(self.ours.series_insert, values):
                return False
        except Exception as error:
            # MySQL only. A duplicate key does not end its transaction.
            if not is_duplicate(error):
                raise
            return False
        self._insert_tick(self._series(spec), times)
        return True

    def _change(self, spec: SeriesSpec, row: Mapping[str, Any]) -> SeriesOutcome:
        if row["fingerprint"] == spec.fingerprint:
            return SeriesOutcome.UNCHANGED
        if row["paused"] is not None:  # it stays paused, with the ticks that it had
            values = self._values(spec) | _watermark(None, row["tick"])
            self.adapter.execute(self.ours.series_change, values)
            return SeriesOutcome.CHANGED
        times = first_after(spec.schedule, spec.id, row["now"], made=row["made"])
        values = self._values(spec) | _watermark(times, row["now"])
        self.adapter.execute(self.ours.series_change, values)
        if times is None or times.tick != row["tick"]:
            self._drop_waiting(row)
        self._insert_tick(self._series(spec), times)
        return SeriesOutcome.CHANGED

    def _values(self, spec: SeriesSpec) -> dict[str, Any]:
        given = {f"b_{name}": value for name, value in self._series(spec).items()}
        return given | {"b_fingerprint": spec.fingerprint}

    def _series(self, spec: SeriesSpec) -> dict[str, Any]:
        return {"ledger": self.ledger, "id": spec.id, **_definition(spec)}

    def _insert_tick(self, series: Mapping[Any, Any], times: Times | None) -> None:
        if times is not None:
            tick = tick_values(series, times)
            self.adapter.execute(
                self.ours.replace,
                {"b_ext_string": None} | {f"b_{name}": tick[name] for name in tick},
            )

    def _drop_waiting(self, row: Mapping[str, Any]) -> None:
        """Cancel the latest tick, unless it was due: then it runs to its end."""
        due = row["due"] if row["due"] < NEVER else row["tick"]
        if due > row["now"]:
            values = {"b_ledger": self.ledger, "b_id": tick_id(row["id"], row["tick"])}
            self.adapter.execute(self.ours.cancel, values)


def _watermark(times: Times | None, tick: int) -> dict[str, int]:
    """The columns of the latest tick; without one the watermark is `tick`, and no other is made."""
    if times is None:
        return {"b_tick": tick, "b_due": NEVER}
    return {"b_tick": times.tick, "b_due": times.due}


def _definition(spec: SeriesSpec) -> dict[str, Any]:
    return {
        "func": spec.func,
        "params": spec.args.decode(),
        "options": options_of(spec.fields),
        "schedule": orjson.dumps(spec.schedule.to_json(), option=orjson.OPT_SORT_KEYS).decode(),
    }


# What a row says.


def place_in(cursor: str | None) -> tuple[int, str]:
    """The due time and the id after which a page begins. Raises InvalidTask for a foreign one."""
    due, _, id = ("-1", ".", "") if cursor is None else cursor.partition(".")
    if not re.fullmatch(r"-1|\d{1,16}", due):
        raise InvalidTask(f"cursor={cursor!r}: give that of the page before")
    return int(due), id


def listing_of(rows: list[Row], limit: int) -> SeriesListing:
    """A page; it was full if there may be more."""
    cursor = f"{rows[-1]['due']}.{rows[-1]['id']}" if len(rows) >= limit else None
    return SeriesListing(series=[series_of(row) for row in rows], cursor=cursor)


def series_of(row: Row) -> Series:
    """Return a row as a series; values that cannot be read are left out."""
    tick_due = row["waiting_due"] if _waits(row) else None
    last = None if row["last_id"] is None or _is_to_come(row) else row["last_id"]
    state = None if last is None else FINAL_STATES.get(row["last_status"])
    args, kwargs = _arguments(row)
    return Series(
        id=row["id"],
        func=row["func"],
        args=args,
        kwargs=kwargs,
        schedule=_schedule(row),
        tags=_tags(row),
        ledger=True,
        declared=False,
        carriers=0,
        created=from_ms(row["made"]),
        next=None if tick_due is None else from_ms(row["tick"]),
        due=None if tick_due is None or tick_due >= NEVER else from_ms(tick_due),
        behind=timedelta(milliseconds=max(row["now"] - row["due"], 0)),
        paused=None if row["paused"] is None else from_ms(row["paused"]),
        over=row["due"] >= NEVER and row["paused"] is None,
        last=None if last is None else from_ms(int(last.rpartition("@")[2])),
        last_id=last,
        began=None,
        late=None,
        state=state,
        ended=None if state is None else from_ms(row["last_modified"]),
        succeeded=None,
        missed=0,
        overlapped=0,
    )


def _waits(row: Row) -> bool:
    """Return whether the latest tick is still to come, by its row."""
    waits = row["waiting_status"] == Status.WAITING and row["waiting_wanted"] == DesiredState.NONE
    return waits and row["paused"] is None


def _is_to_come(row: Row) -> bool:
    """Return whether the last tick by its time still waits: for its jitter, or a later time."""
    is_latest = row["last_id"] == f"{row['id']}@{row['tick']}"
    return is_latest and _waits(row) and row["waiting_due"] > row["now"]


def _schedule(row: Row) -> Schedule | None:
    try:
        return read_schedule(row["schedule"].encode())
    except (InvalidTask, ValueError):
        return None


def _arguments(row: Row) -> tuple[Any, Any]:
    try:
        return keys.decode_args(str(row["params"]).encode())
    except ValueError:
        return [], {}


def _tags(row: Row) -> tuple[str, ...]:
    try:
        options = orjson.loads(row["options"] or "{}")
        return tuple(map(str, options.get("tags", ())))
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return ()

"""Writes series in the caller's transaction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from expirebridge.ledger.db_errors import is_duplicate
from expirebridge.ledger.rows import options_of
from expirebridge.ledger.series_ticks import NEVER, tick_id, tick_values
from expirebridge.ledger.sql_types import ahead
from expirebridge.ledger.statements import Statements
from expirebridge.ledger.transaction import TransactionAdapter
from expirebridge.series.calls import Times
from expirebridge.series.records import read_schedule
from expirebridge.series.schedule import SeriesSpec
from expirebridge.series.ticks import first_after
from expirebridge.series.values import SeriesOutcome
from expirebridge.task.task import Change


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

"""The producer's half of series: each statement in the caller's transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from expirebridge.ledger.channel import Channel
from expirebridge.ledger.faults import is_duplicate
from expirebridge.ledger.rows import options_of
from expirebridge.ledger.statements import Statements
from expirebridge.ledger.ticking import NEVER, tick_id, tick_values
from expirebridge.policy.series import SeriesSpec
from expirebridge.series.state import SeriesOutcome
from expirebridge.series.times import first_after
from expirebridge.store.calls import Times


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Puts and removes series of one ledger, through one transaction."""

    ledger: str
    channel: Channel
    ours: Statements
    insert: Callable[[Mapping[str, Any]], object]
    """Inserts the row of a task, in the place of any other with its id."""

    def put(self, spec: SeriesSpec) -> SeriesOutcome:
        """Make a series, or change it, with its next tick."""
        while True:
            row = self._read(spec.id)
            if row is not None:
                return self._change(spec, row)
            if self._make(spec):
                return SeriesOutcome.CREATED

    def remove(self, id: str) -> bool:
        """Remove a series and its waiting tick; whether there was one."""
        row = self._read(id)
        if row is None:
            return False
        self.channel.execute(self.ours.series_delete, {"b_ledger": self.ledger, "b_id": id})
        self._drop_waiting(row)
        return True

    def _read(self, id: str) -> Mapping[str, Any] | None:
        values = {"b_ledger": self.ledger, "b_id": id}
        rows = self.channel.rows(self.ours.series_get, values)
        return rows[0] if rows else None

    def _make(self, spec: SeriesSpec) -> bool:
        """Make a new series; False if another was faster."""
        [clock] = self.channel.rows(self.ours.clock, {})
        now = clock["now"]
        times = first_after(spec.schedule, spec.id, now, made=now)
        values = self._values(spec, times, now) | {"b_made": now}
        try:
            if not self.channel.execute(self.ours.series_insert, values):
                return False
        except Exception as error:
            # MySQL only. A duplicate key does not end its transaction.
            if not is_duplicate(error):
                raise
            return False
        self._insert_tick(spec, times)
        return True

    def _change(self, spec: SeriesSpec, row: Mapping[str, Any]) -> SeriesOutcome:
        if row["fingerprint"] == spec.fingerprint:
            return SeriesOutcome.UNCHANGED
        times = first_after(spec.schedule, spec.id, row["now"], made=row["made"])
        self.channel.execute(self.ours.series_change, self._values(spec, times, row["now"]))
        if times is None or times.tick != row["tick"]:
            self._drop_waiting(row)
        self._insert_tick(spec, times)
        return SeriesOutcome.CHANGED

    def _values(self, spec: SeriesSpec, times: Times | None, now: int) -> dict[str, Any]:
        return {
            "b_ledger": self.ledger,
            "b_id": spec.id,
            **{f"b_{name}": value for name, value in _definition(spec).items()},
            "b_fingerprint": spec.fingerprint,
            "b_tick": now if times is None else times.tick,
            "b_due": NEVER if times is None else times.due,
        }

    def _insert_tick(self, spec: SeriesSpec, times: Times | None) -> None:
        if times is not None:
            series = {"ledger": self.ledger, "id": spec.id, **_definition(spec)}
            tick = tick_values(series, times)
            self.insert({"b_ext_string": None} | {f"b_{name}": tick[name] for name in tick})

    def _drop_waiting(self, row: Mapping[str, Any]) -> None:
        """Cancel the latest tick, unless it was due: then it runs to its end."""
        if row["due"] > row["now"]:
            values = {"b_ledger": self.ledger, "b_id": tick_id(row["id"], row["tick"])}
            self.channel.execute(self.ours.cancel, values)


def _definition(spec: SeriesSpec) -> dict[str, Any]:
    return {
        "func": spec.func,
        "params": spec.args.decode(),
        "options": options_of(spec.fields),
        "schedule": orjson.dumps(spec.schedule.to_json(), option=orjson.OPT_SORT_KEYS).decode(),
    }

"""The record of a series: what a `SeriesSpec` becomes there, and back."""

from functools import lru_cache

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.series.calls import NewSeries
from expirebridge.series.replies import StoredSeries
from expirebridge.series.schedule import Schedule, SeriesSpec, schedule_from_json
from expirebridge.store.record_values import split_call, text
from expirebridge.task import keys
from expirebridge.task.calls.call import Argument

_OF_TICKS = ("tags", "retry", "timeout", "misfire")


def new_series(spec: SeriesSpec, *, declared: bool) -> NewSeries:
    """Encode a series for its record."""
    schedule = spec.schedule
    fields: dict[str, Argument] = dict(spec.fields)
    args = spec.args
    if keys.is_hidden(args) or len(args) > keys.MAX_ARGS_IN_KEY:
        fields["args"], args = args, keys.IN_RECORD
    fields |= {
        "call": spec.func.encode() + b"?" + args,
        "spec": orjson.dumps(schedule.to_json(), option=orjson.OPT_SORT_KEYS),
        "overlap": schedule.overlap,
    }
    return NewSeries(id=spec.id, fingerprint=spec.fingerprint, declared=declared, fields=fields)


def spec_of(stored: StoredSeries) -> SeriesSpec:
    """Read back what a series is. Raises ValueError if its record is damaged."""
    func, args = split_call(stored.record.get("call", b""))
    record = stored.record
    return SeriesSpec(
        id=stored.id,
        func=keys.check_func(func),
        args=record.get("args", b"") if args == keys.IN_RECORD else args,
        schedule=read_schedule(record.get("spec", b"")),
        fields={
            name: float(record[name]) if name == "timeout" else stored.text(name)
            for name in _OF_TICKS
            if name in record
        },
    )


@lru_cache(maxsize=4096)
def read_schedule(stored: bytes) -> Schedule:
    """Read a schedule from a record, once for all that have the same. Raises InvalidTask."""
    try:
        return schedule_from_json(orjson.loads(stored))
    except orjson.JSONDecodeError as error:
        raise InvalidTask(f"not a schedule: {text(stored)!r:.60}: {error}") from None

"""A series, as it is declared or asked for: what runs, and when."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.model import keys
from expirebridge.model.schedule import Schedule

_LONGEST_TICK = len("@9999999999999")
"""Of an id, what a tick adds to that of its series: enough until the year 2286."""
MAX_ID = 128 - _LONGEST_TICK
"""The most characters that the id of a series can have."""
_FINGERPRINT = 16
"""Hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSpec:
    """What a series runs, and when: all that one deploy can change about it."""

    id: str
    func: str
    args: bytes
    """As JSON, as `wire.encode_args` writes them: at most 64 KiB."""
    schedule: Schedule
    fields: Mapping[str, str | float] = field(default_factory=dict)
    """Tags and policies of its ticks, as the record of a task holds them."""

    @property
    def fingerprint(self) -> str:
        """A short hash of what the series runs and when: equal if nothing differs but the id."""
        content = {
            "func": self.func,
            # As text: the order of keyword arguments is kept.
            "args": self.args.decode(),
            "schedule": self.schedule.to_json(),
            "fields": self.fields,
        }
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return sha256(canonical).hexdigest()[:_FINGERPRINT]


def check_series_id(id: object) -> str:
    """Return a valid id of a series; raise InvalidTask for any other, or if its ticks had none."""
    checked = keys.check_id(id)
    if len(checked) > MAX_ID:
        raise InvalidTask(
            f"id={checked[:40]!r}...: {len(checked)} characters; a series has at most {MAX_ID}, "
            "since the id of a tick is <series>@<milliseconds>"
        )
    return checked

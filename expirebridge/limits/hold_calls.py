"""The calls about holds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from expirebridge.limits.hold import Hold
from expirebridge.store.record_values import text
from expirebridge.task.calls.call import Command, Everywhere, rows_of, script
from expirebridge.task.task import from_ms


def put_hold(name: str, *, until: int | None, reason: str, by: str) -> Command[bool]:
    """Write a hold to each partition; `name` is its field in the hash `holds`, `until` in ms.

    False if it would end in the past: then it is not written.
    """
    value = orjson.dumps({"until": until, "reason": reason, "by": by})
    return script("hold", name, value, read=bool, route=Everywhere(all))


def release_hold(name: str, *, spread: float = 0.0) -> Command[None]:
    """Remove a hold from each partition, and let go the first tasks that it held.

    Each is due at a time of its own, over so many seconds.
    """
    return script(
        "release", name, round(spread * 1000), read=lambda _: None, route=Everywhere(lambda _: None)
    )


def list_holds() -> Command[list[Hold]]:
    """Read the holds of all partitions, by name."""
    return script("list_holds", read=_holds, route=Everywhere(_joined))


def _holds(reply: Sequence[Any]) -> list[Hold]:
    return sorted((_hold(*row) for row in rows_of(reply, 4)), key=lambda hold: hold.name)


def _hold(name: bytes, value: bytes, ends: int, waiting: int) -> Hold:
    """The script says when it ends, as it says that to a claim; the rest is for people."""
    try:
        stored = orjson.loads(value)
    except ValueError:
        stored = None
    known = stored if isinstance(stored, dict) else {}
    ends_well = known.get("until") is None or ends >= 0
    return Hold(
        name=text(name),
        until=from_ms(ends) if ends >= 0 else None,
        reason=str(known.get("reason", "")),
        by=str(known.get("by", "")),
        waiting=waiting,
        readable=isinstance(stored, dict) and ends_well,
    )


def _joined(each: Iterable[list[Hold]]) -> list[Hold]:
    """The holds of all partitions. If one differs between them, that of the first is shown."""
    found = dict[str, Hold]()
    for hold in (hold for holds in each for hold in holds):
        before = found.get(hold.name)
        found[hold.name] = (
            replace(before, waiting=before.waiting + hold.waiting) if before else hold
        )
    return [found[name] for name in sorted(found)]

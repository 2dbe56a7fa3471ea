"""The rules of the protocol, each left out once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from expirebridge.ledger.entries import Numbers
from expirebridge.ledger.passbook import Passbook
from expirebridge.store import scripts

RULES = ("reserve", "cas", "fence", "still", "gate", "mark", "tombstone", "row", "revision")
IN_LUA = {
    "cas": (
        "relay",
        "if nonce ~= ARGV[2] or number ~= tonumber(ARGV[4]) then return { 0, now } end",
        "",
    ),
    "still": (
        "forget_dirty",
        "  if not since or tonumber(since) < tonumber(ARGV[at + 1]) then return 0 end\n",
        "",
    ),
    "tombstone": ("relay", "local function carry(id, row)\n", "local function carry(id, row)\n"
                  "  if FINISHED[row.what] then return KEPT end\n"),
    "revision": (
        "relay",
        "  if FINISHED[old.state] then\n    mark_dirty(id)\n    return KEPT\n  end\n  follow",
        "  if FINISHED[old.state] then return create(id, row, old) end\n  follow",
    ),
}  # fmt: skip
"""The script, what stands there, and what stands there without the rule."""


@contextmanager
def planted(rule: str) -> Iterator[None]:
    """While the block runs, the protocol lacks this rule; what the world obeys, it knows itself."""
    if rule in IN_LUA:
        name, right, wrong = IN_LUA[rule]
        text = scripts.SHIPPED.text(name)
        assert right in text
        with scripts.using(scripts.Library({name: text.replace(right, wrong)})):
            yield
    elif rule == "fence":
        with patch.object(Passbook, "_is_last", _always_last):
            yield
    elif rule == "reserve":
        with patch.object(Passbook, "take", _take_without_looking):
            yield
    else:
        yield


def _always_last(self: Passbook, connection: Any, number: int, *, stamps: bool) -> bool:
    passes = self._passes
    if stamps:
        stamp = connection.scalar(passes.select().with_only_columns(passes.c.stamp))
        connection.execute(passes.update().values(stamp=max(stamp, number)))
    return True


def _take_without_looking(self: Passbook, expected: Numbers, *, seen: int) -> int | None:
    latest = self.read()
    assert latest is not None
    with self.engine.begin() as connection:
        number = seen + 1
        connection.execute(self._passes.update().values(number=max(latest.number, number)))
        task = self._task
        if seen < latest.stamp:
            connection.execute(task.update().where(task.c.stamp > seen).values(todo=2))
    return number

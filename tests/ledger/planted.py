"""The rules of the protocol, each left out once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection

from expirebridge.ledger import relay, relay_store, row_results, sql_tables
from expirebridge.ledger.lost_rows import LostRows
from expirebridge.ledger.relay_statements import RelayState, StatusUpdate
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import LARGEST_TIME
from expirebridge.store import script_loader

KEPT_ANEW = "  if began_anew and not is_new then return KEPT end\n"
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
    "tombstone": ("relay", "local function apply_row(id, row)\n",
                  "local function apply_row(id, row)\n"
                  "  if FINISHED[row.what] then return KEPT end\n"),
    "revision": (
        "include/relay_move",
        "  elseif is_new and row.moved then\n",
        "  elseif is_new then\n",
    ),
    # A wish of a row is lost if its task began anew in Redis.
    "wish of an older life": ("relay", KEPT_ANEW, "  if began_anew then return KEPT end\n"),
    # What was erased is begun anew by Redis.
    "erased": ("relay", KEPT_ANEW,
               "  if began_anew and (not is_new or FINISHED[row.what]) then return KEPT end\n"),
    # A cancel does not take back that the task is to run again.
    "re-armed": ("include/rearm", "  redis.call('DEL', trigger_key(id, record))\n"
                 "  redis.call('HSET', record_key(id), 'cancel', 1)\n"
                 "  redis.call('HDEL', record_key(id), 'rearm')\n",
                 "  redis.call('HSET', record_key(id), 'cancel', 1)\n"),
    # What was sent early is cancelled if its row is not there.
    "early without a row": ("judge_early", "  if not early then return 0 end\n",
                            "  if early ~= nil or not early then return 0 end\n"),
    "early over a record": (
        "send_early", "redis.call('EXISTS', record_key(id)) == 0", "true",
    ),
    "early after a loss": (
        "send_early", "if nonce ~= ARGV[2] or number < tonumber(ARGV[3]) then return {} end", "",
    ),
    # What ends while another life of it runs takes the place of that.
    "one run": ("include/relay_create",
                "  if old.state ~= 'running' then return create_from_row(id, row, old) end\n",
                "  if old.state ~= 'running' then return create_from_row(id, row, old) end\n"
                "  if row.what ~= 'waits' then\n"
                "    redis.call('HDEL', record_key(id), 'token', 'rearm', 'next')\n"
                "    local state = row.what == 'cancel' and 'cancelled' or row.what\n"
                "    finish(id, old, state, keep_ended)\n"
                "    put_generation(id, old, row.generation, row.revision)\n"
                "    mark_dirty(id)\n"
                "    return APPLIED\n"
                "  end\n"),
}  # fmt: skip
"""The script, what stands there, and what stands there without the rule."""


PLANNED = {
    "stamped": ("OR (stamp > 0 AND todo = 1) ", ""),
    "cancelled": ("wanted = 'cancelled' OR ", ""),
}
"""What stands in the column `planned` of tables that are created meanwhile, and what instead."""


@contextmanager
def planted(rule: str) -> Iterator[None]:
    """While the block runs, the protocol lacks this rule; what the world obeys, it knows itself."""
    if rule in IN_LUA:
        name, right, wrong = IN_LUA[rule]
        text = script_loader.SHIPPED.text(name)
        assert right in text
        with script_loader.using(script_loader.ScriptLibrary({name: text.replace(right, wrong)})):
            yield
    elif rule == "fence":
        with patch.object(RelayStore, "_is_last", _always_last):
            yield
    elif rule == "reserve":
        with patch.object(RelayStore, "_take", _take_without_looking):
            yield
    elif rule == "write-back":
        with patch.object(relay_store, "what_comes_of", _written_whatever_it_wants):
            yield
    elif rule == "unmarked":
        with patch.object(LostRows, "mark", _marks_and_forgets):
            yield
    elif rule in PLANNED:
        right, wrong = PLANNED[rule]
        assert right in sql_tables._PLANNED
        with patch.object(sql_tables, "_PLANNED", sql_tables._PLANNED.replace(right, wrong)):
            yield
    elif rule == "near":
        with patch.object(relay_store, "horizon_ms", lambda _: LARGEST_TIME):
            yield
    elif rule == "waits for its id":
        with patch.object(relay, "is_kept_back", lambda *_: False):
            yield
    elif rule == "rebound":
        with patch.object(RelayStore, "rebind", _rebound_with_what_is_kept_back):
            yield
    elif rule == "completed":
        with patch.object(relay_store, "what_comes_of", _leaving_what_differs):
            yield
    else:
        yield


def _always_last(self: RelayStore, connection: Any, number: int, *, stamps: bool) -> bool:
    passes = self._passes
    if stamps:
        stamp = connection.scalar(passes.select().with_only_columns(passes.c.stamp))
        connection.execute(passes.update().values(stamp=max(stamp, number)))
    return True


def _take_without_looking(
    self: RelayStore, connection: Connection, expected: RelayState, *, stamps: bool
) -> int:
    number = expected.number + 1
    latest = connection.execute(self._passes.select()).one()
    values = {"number": max(latest.number, number)}
    if stamps:
        values["stamp"] = max(latest.stamp, number)
    connection.execute(self._passes.update().values(values))
    return number


def _marks_and_forgets(self: LostRows, *lost: Any) -> None:
    """What is locked is not marked, and nobody knows that it was lost."""
    _MARK_LOST(self, *lost)


def _rebound_with_what_is_kept_back(self: RelayStore, *binding: Any, above: int) -> None:
    """What Redis never had is lost, too."""
    with patch.object(self, "horizon", None):
        _REBIND(self, *binding, above=above)


def _leaving_what_differs(row: Any, change: StatusUpdate) -> str:
    """A row that has ended otherwise than its task stays so."""
    found = _WHAT_COMES_OF(row, change)
    return "nothing" if found == "again" else found


def _written_whatever_it_wants(row: Any, change: StatusUpdate) -> str:
    """A later life is written into a row that wants something else by now."""
    is_later = row.generation < change.version.generation
    return "written" if is_later else _WHAT_COMES_OF(row, change)


_WHAT_COMES_OF = row_results.what_comes_of
_MARK_LOST = LostRows.mark
_REBIND = RelayStore.rebind

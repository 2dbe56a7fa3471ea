"""A random life of one database in which series, limits and groups meet, for transcripts.

There is no model beside it: nothing is judged but that no script fails.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import redis

from expirebridge import State
from expirebridge.groups import calls as groups
from expirebridge.lateness import calls as forecasting
from expirebridge.limits import calls as lanes
from expirebridge.limits import hold_calls
from expirebridge.moving import calls as migration
from expirebridge.sealing import calls as resealing
from expirebridge.series import calls as series_commands
from expirebridge.series.calls import NextTick, Putting, Times
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import (
    actions,
    circumstances,
    claiming,
    fleet,
    inspection,
    looking,
    producing,
    reconciling,
)
from expirebridge.task.calls.call import Runnable
from expirebridge.task.calls.claiming import Settlement, Walk
from tests.kit.series import HOUR, LEASE, series
from tests.kit.steps import PREFIX, new, server_ms

SETTINGS = Settings(lease=150, keep_succeeded=600, keep_failed=1200)
FUNCTIONS = ("mail.send", "line.run", "slow.run", "plain.run")
LIMITS: dict[str, object] = {
    "f mail.send": [["all"]], "l all": {"most": 2, "wait": 600_000, "fair": True},
    "f line.run": [["line", 0, "to", None], ["all"]],
    "l line": {"most": 1, "ordered": True, "blocks": True},
    "f slow.run": [["pace"], ["all"]], "l pace": {"starts":1,"every":60_000_000, "burst": 1},
}  # fmt: skip
OUTCOMES = ("succeeded", "succeeded", "failed", "retry", "snoozed", "released", "unknown")
SERIES = ("s", "t", "u")
GROUP = "g"
HOLDS = ("func mail.send", "tag vip", "all")


class MixedLife:
    """One database, and what a seed lets happen in it. `pass_time` moves its server's clock."""

    def __init__(
        self, client: redis.Redis, store: Store, number: int, pass_time: Callable[[float], None]
    ) -> None:
        self._client, self._store, self._let_pass = client, store, pass_time
        self._random = random.Random(number)  # noqa: S311 - to be repeated
        self._has_limits = number % 3 > 0
        self._runs: list[tuple[str, str]] = []
        self._drawn = 0

    def live(self, steps: int) -> None:
        """Let so many things happen."""
        if self._has_limits:
            fields = [(name, json.dumps(value).encode()) for name, value in LIMITS.items()]
            self._run(lanes.declare_limits("dd", fields))
        self._beat()
        acts: list[Callable[[], object]] = [
            self._put, self._follow, self._retime, self._change_series, self._make, self._make,
            self._member, self._change_group, self._change, self._claim, self._claim, self._claim,
            self._settle, self._settle, self._settle, self._settle_then, self._sweep, self._hold,
            self._pass_time, self._edit_key, self._listeners,
        ]  # fmt: skip
        for _ in range(steps):
            self._random.choice(acts)()
            if self._random.random() < 0.1:
                self._look()
        self._look()

    def _run(self, runnable: Runnable[Any]) -> Any:
        return self._store.run(runnable)

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _call(self) -> str:
        return f"{self._one(*FUNCTIONS)}?[{self._one(1, 2)}]"

    def _any_id(self) -> str:
        ids = [id.decode() for state in State for id in self._zset(state)]
        return str(self._one(*ids, "a", "b"))

    def _zset(self, name: str) -> list[bytes]:
        found: Any = self._client.zrange(f"{PREFIX}:{name}", 0, -1)
        return list(found)

    def _times(self) -> Times:
        now = server_ms(self._client)
        tick = now + self._one(-HOUR, 0, 1000, HOUR)
        return Times(tick, tick + self._one(0, 500), self._one(None, tick + HOUR), "2026b 0")

    # Series

    def _put(self) -> None:
        id, declared = self._one(*SERIES), self._one(True, False)
        fields = {"overlap": self._one("skip", "allow"), "tags": self._one("vip", "nightly")}
        item = series(
            id, call=self._call(), declared=declared, fingerprint=self._one("f1", "f2"), **fields
        )
        before: Any = self._client.hget(f"{PREFIX}:series:{id}", "fingerprint") or b""
        times = self._one(None, self._times(), self._times())
        self._run(series_commands.put_series([Putting(item, before, 0, times)]))

    def _follow(self) -> None:
        found = self._run(series_commands.find_due_series())
        items = [NextTick(one.id, one.tick, self._times()) for one in found.series]
        self._run(series_commands.make_ticks(items))

    def _retime(self) -> None:
        found = self._run(series_commands.find_outdated("2026c 0", 0))
        items = [NextTick(one.id, one.tick, self._times()) for one in found]
        self._run(series_commands.retime_ticks(items))

    def _change_series(self) -> None:
        id = self._one(*SERIES)
        pairs = [(id, self._one("f1", "f2"))]
        calls: list[Runnable[Any]] = [
            series_commands.pause_series(id), series_commands.run_series(id),
            series_commands.resume_series(id, self._one("f1", "f2"), self._times()),
            series_commands.declare_series(self._one("one", "two"), LEASE, pairs),
            series_commands.remove_series([id], LEASE),
        ]  # fmt: skip
        self._run(self._one(*calls, calls[1]))

    # Tasks and groups

    def _new(self, id: str, **more: Any) -> producing.NewTask:
        fields: dict[str, Any] = {"tags": "vip"} if self._one(True, False) else {}
        if_exists = self._one("reject", "keep", "replace", "extend")
        ms = self._one(0, 0, 1000, HOUR)
        call = self._call().encode()
        return new(id, ms, call=call, **{"fields": fields, "if_exists": if_exists} | more)

    def _drawn_task(self) -> producing.NewTask:
        self._drawn += 1
        return self._new(f"{self._drawn:032x}", has_random_id=True, if_exists="reject")

    def _make(self) -> None:
        some = [self._new(self._one("a", "b", "c", "d")), self._drawn_task()]
        self._run(producing.make(some[: self._one(1, 2)]))
        self._run(producing.make([self._drawn_task() for _ in range(self._one(1, 3))], bulk=True))

    def _member(self) -> None:
        on_failed = self._one("wait", "run", "cancel")
        then = self._new(f"{GROUP}@then", if_exists="reject")
        self._run(
            groups.make_group(GROUP, on_failed=on_failed, definition="d", count=2, follow_up=then)
        )
        member = self._new(f"{GROUP}@g{self._one(0, 1, 2)}")
        self._run(producing.make([member]))

    def _change_group(self) -> None:
        calls: list[Runnable[Any]] = [
            groups.reserve_members(GROUP, 1), groups.count_lacking(GROUP, 0, 3),
            groups.close_group(GROUP), groups.cancel_group(GROUP, keep=600),
        ]  # fmt: skip
        self._run(self._one(*calls))

    def _change(self) -> None:
        id = self._any_id()
        calls: list[Runnable[Any]] = [
            producing.cancel([id], keep=600), producing.pause([id]), producing.resume([id]),
            producing.resume([id], spare_follow_ups=True), producing.put_off([id], 60),
            producing.run_now(id), producing.purge([id]), producing.beat(id), lanes.let_pass(id),
        ]  # fmt: skip
        self._run(self._one(*calls))

    def _hold(self) -> None:
        name = self._one(*HOLDS)
        calls: list[Runnable[Any]] = [
            hold_calls.put_hold(name, until=None, reason="r", by="b"),
            hold_calls.release_hold(name, spread=self._one(0.0, 60.0)),
            lanes.set_weight("all", "1", self._one(1.0, 2.0)),
            lanes.set_limit(self._one("all", "line"), None, self._one(None, 1, 3)),
        ]  # fmt: skip
        self._run(self._one(*calls))

    # Listeners

    def _beat(self) -> None:
        call = claiming.heartbeat("one", SETTINGS.lease, self._runs, code="aa", limits="dd")
        self._run(call)

    def _claim(self) -> None:
        token, places = f"token-{self._random.getrandbits(32)}", self._one(1, 3, 100)
        if self._one(True, False):
            call = claiming.claim(token, SETTINGS, places=places, idle=True, limits="dd")
        else:
            walks = [Walk(b"-inf", b"", b"+inf", 1)]
            call = claiming.claim_known(
                token, SETTINGS, places=places, idle=True, limits="dd", code="aa", walks=walks
            )
        self._runs += [(task.id, token) for task in self._run(call).tasks]
        if self._one(True, False, False):
            self._run(claiming.resent(call))

    def _settlement(self, **more: Any) -> Settlement:
        id, token = self._runs.pop(self._random.randrange(len(self._runs)))
        return Settlement(id, token, self._one(*OUTCOMES), self._one(0, 0, 60), **more)

    def _settle(self) -> None:
        some = [self._settlement() for _ in self._runs[: self._one(1, 3)]]
        if some:
            self._run(claiming.settle(some, SETTINGS))

    def _settle_then(self) -> None:
        if self._runs:
            then = self._new(self._one("a", "e", f"{GROUP}@g0"))
            settlement = self._settlement(then=then)._replace(outcome="succeeded", delay=0)
            self._run(claiming.settle_then([settlement], SETTINGS))

    def _sweep(self) -> None:
        self._run(reconciling.sweep(SETTINGS))

    def _pass_time(self) -> None:
        self._let_pass(self._one(1, 60, 60, 3600, 90_000))
        self._beat()

    def _edit_key(self) -> None:
        """Another client deletes, or sets, a task's key."""
        id = self._any_id()
        call: Any = self._client.hget(f"{PREFIX}:task:{id}", "call")
        if not call:
            return
        name = f"{id}:?".encode() + call
        self._one(
            lambda: self._client.delete(name),
            lambda: self._client.set(name, "", px=60_000),
            lambda: self._client.persist(name),
        )()
        self._run(reconciling.check_keys([name], SETTINGS))
        for key in self._run(reconciling.scan("0", 1000, SETTINGS)).found:
            self._run(reconciling.find_unexplained([key], reconciling.EventKind.LIVE))

    def _listeners(self) -> None:
        code = self._one("aa", "bb")
        calls: list[Runnable[Any]] = [
            fleet.declare(code, dict.fromkeys(FUNCTIONS[: self._one(2, 4)], "1")),
            claiming.heartbeat(f"of {code}", SETTINGS.lease, [], code=code),
            claiming.leave(self._one("of aa", "of bb")),
            forecasting.note_durations({}),
            actions.note_action(who="w", action="cancel", target="a", result="ok"),
            migration.note_import("csv", look_only=self._one(True, False)),
        ]  # fmt: skip
        self._run(self._one(*calls))

    def _look(self) -> None:
        """Read all that can be read."""
        state, id = self._one(*State), self._any_id()
        calls: list[Runnable[Any]] = [
            looking.get(id), looking.count(LEASE), circumstances.read_circumstances(id),
            looking.list_page(cursor="0"), looking.list_page(state=state, cursor="0"),
            looking.list_page(group=GROUP, cursor="0"),
            inspection.calls_page(state, ""), inspection.read_health(LEASE),
            inspection.count_before(state, [server_ms(self._client)]),
            inspection.read_tally(spans=3, minutes=1), inspection.list_listeners(10),
            inspection.find_unhandled(60, limit=10), inspection.survey_functions(10),
            inspection.find_ids(state, "", rank=0, examine=10, find=10),
            inspection.find_overwritten(), forecasting.forecast(60, 3, sample=10),
            lanes.read_limits(10), lanes.read_lane_arguments(), hold_calls.list_holds(),
            groups.get_group(GROUP), groups.list_groups("0"), fleet.read_fleet(LEASE),
            actions.read_actions(10), forecasting.read_durations(), migration.find_known([id]),
            migration.stored_page(state, "0"), migration.stored_groups("0"),
            resealing.record_page(state, "0"), series_commands.get_series(SERIES[0], LEASE),
            series_commands.series_page("0", LEASE),
        ]  # fmt: skip
        for call in calls:
            self._run(call)

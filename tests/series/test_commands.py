"""The commands for series."""

import json

import redis

from expirebridge import Bridge
from expirebridge.series import calls as series_commands
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from tests.kit.history import now
from tests.kit.invoked import run
from tests.kit.series import LEASE, put, series

NIGHTLY, BERLIN = "30 2 * * *", "Europe/Berlin"


def test_series_are_listed_and_shown(bridge: Bridge, url: str) -> None:
    made = bridge.schedule("nightly", "db.tidy", [7], cron=NIGHTLY, tz=BERLIN)
    listed = run("series", "list", url=url)
    assert listed.returncode == 0
    assert "30 2 * * * Europe/Berlin" in listed.stdout
    [data] = json.loads(run("series", "list", "--json", url=url).stdout)["series"]
    assert (data["id"], data["func"], data["args"]) == ("nightly", "db.tidy", [7])
    shown = run("series", "show", "nightly", url=url)
    assert "db.tidy" in shown.stdout
    assert made.next is not None
    assert json.loads(run("series", "show", "nightly", "--json", url=url).stdout)["next"] == (
        made.next.isoformat()
    )


def test_the_next_ticks_have_their_local_time_and_offset(bridge: Bridge, url: str) -> None:
    bridge.schedule("nightly", "db.tidy", cron=NIGHTLY, tz=BERLIN)
    result = run("series", "next", "nightly", "-n", "10", url=url)
    head, *rows = result.stdout.splitlines()
    assert "Europe/Berlin" in head
    assert len(rows) == 10
    assert all("02:30:00 +0" in row or "03:00:00 +02" in row for row in rows)
    ticks = json.loads(run("series", "next", "nightly", "-n", "3", "--json", url=url).stdout)
    assert len(ticks) == 3
    assert all(tick.endswith((":00+01:00", ":00+02:00")) for tick in ticks)


def test_a_series_is_steered(bridge: Bridge, url: str) -> None:
    bridge.schedule("s", "db.tidy", every="1h")
    assert run("series", "pause", "s", url=url).stdout == "s: paused\n"
    assert " paused" in run("series", "list", url=url).stdout
    assert run("series", "resume", "s", url=url).stdout == "s: resumed\n"
    tick = run("series", "run", "s", url=url).stdout.strip()
    assert tick.startswith("s@")
    assert "tick" in run("show", tick, url=url).stdout
    assert run("series", "remove", "s", url=url).stdout == "s: removed\n"
    for words in ("show", "next", "pause", "resume", "run", "remove"):
        result = run("series", words, "s", url=url)
        assert (result.returncode, result.stderr) == (
            3, "expirebridge: series 's': not found\n"
        )  # fmt: skip


def test_what_handlers_declare_is_left(client: redis.Redis, url: str) -> None:
    store = Store(client, prefix="expirebridge")
    store.run(claiming.heartbeat("listener", LEASE, [], code="c0de"))
    store.run(series_commands.declare_series("listener", LEASE, [("s", "f1")]))
    put(store, series(declared=True), now() + 3_600_000)
    result = run("series", "remove", "s", url=url)
    assert result.returncode == 3
    assert result.stderr.startswith(
        "expirebridge: series 's': handlers declare it: remove its @eve"
    )


def test_prune_asks_and_reports(bridge: Bridge, url: str) -> None:
    bridge.schedule("s", "db.tidy", every="1h")
    assert run("series", "prune", url=url).returncode == 2
    result = run("series", "prune", "--yes", url=url)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "0 removed\n")


def test_the_doctor_looks_at_series(bridge: Bridge, client: redis.Redis, url: str) -> None:
    assert "series" not in run("doctor", url=url).stdout
    bridge.schedule("s", "db.tidy", every="1h")
    assert "1 series has its next tick" in run("doctor", url=url).stdout
    client.zadd("expirebridge:series", {"s": 1})
    assert "the next tick was not made in time of s" in run("doctor", url=url).stdout
    client.hset("expirebridge:series:s", "spec", "{")
    broken = run("doctor", url=url)
    assert broken.returncode == 5
    assert "the schedule of s cannot be read" in broken.stdout


def test_the_forecast_says_that_it_knows_only_the_next_ticks(bridge: Bridge, url: str) -> None:
    assert "series" not in run("forecast", url=url).stdout
    bridge.schedule("s", "db.tidy", every="10m")
    assert "of 1 series only the next tick is counted" in run("forecast", url=url).stdout
    assert json.loads(run("forecast", "--json", url=url).stdout)["series"] == 1

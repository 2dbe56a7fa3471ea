"""Which jobs of APScheduler become series or tasks, and which are left and why."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from expirebridge import Bridge
from expirebridge.task.task import from_ms
from tests.importing import libraries
from tests.importing.reports import import_from, reasons

pytestmark = pytest.mark.rest

DUE = 1_956_528_000_000
"""In 2032."""
MAPPED = ("--map", "__main__:send=mail.send")


@pytest.fixture
def database(tmp_path: Path) -> URL:
    return make_url(f"sqlite:///{tmp_path}/jobs.db")


def cron(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "trigger": "cron", **fields}


CRONS = [
    (cron("a", day_of_week="0-4", hour="8,12"), "0 8,12 * * MON,TUE,WED,THU,FRI Europe/Berlin"),
    (cron("b", day_of_week="sat-sun", hour=3, pytz="Asia/Tokyo"), "0 3 * * SAT,SUN Asia/Tokyo"),
    (cron("c", day="2nd tue", month="*/2"), "0 0 * */2 TUE#2 Europe/Berlin"),
    (cron("d", day="last fri"), "0 0 * * 5L Europe/Berlin"),
    (cron("e", day="last", timezone="UTC"), "0 0 L * * UTC"),
    (cron("f", day_of_week="*/3", minute="5/20"), "5/20 * * * MON,THU,SUN Europe/Berlin"),
    (cron("g", month="jan-mar", day=1, minute="*/15"), "*/15 * 1 1-3 * Europe/Berlin"),
    ({"id": "h", "trigger": ["0 9 * * 0", "UTC"]}, "0 9 * * MON UTC"),
]


def test_triggers_become_the_same_schedules(database: URL, url: str, bridge: Bridge) -> None:
    libraries.apscheduler(database, [job for job, _ in CRONS])
    done = import_from("apscheduler", str(database), *MAPPED, url=url)
    assert [one["schedule"] for one in done["series"]] == [schedule for _, schedule in CRONS]
    assert [one["series"] for one in done["series"]] == [f"apscheduler-{one}" for one in "abcdefgh"]


def test_times_arguments_and_policies(database: URL, url: str, bridge: Bridge) -> None:
    call = {"args": [1, "x"], "kwargs": {"to": None}}
    jobs = [
        cron("bounded", hour=3, start_date="2031-01-01", end_date="2032-01-01", jitter=5),
        {"id": "quarter", "trigger": "interval", "minutes": 15, "misfire_grace_time": 60,
         "coalesce": False, "max_instances": 3, **call},
        {"id": "once", "trigger": "date", "run_ms": DUE, "misfire_grace_time": None},
        {"id": "an id", "trigger": "interval", "days": 1},
        {"id": "paused", "trigger": "interval", "hours": 2, "paused": True},
        {"id": "paused once", "trigger": "date", "run_ms": DUE, "paused": True},
    ]  # fmt: skip
    libraries.apscheduler(database, jobs)
    words = ("apscheduler", str(database), *MAPPED)
    dry = import_from(*words, "--dry-run", url=url)
    assert (dry["would_create"], dry["left"]) == (4, 2)
    assert bridge.count().pending == 0
    assert reasons(dry) == {"paused; --disabled makes them, paused": 2}
    done = import_from(*words, "--disabled", url=url)
    assert (done["created"], done["left"]) == (5, 1)
    assert done["changes"] == {
        "a misfire_grace_time of 1 s, the default, is ignored: what is late runs": 3,
        "coalesce=False is ignored: of what was missed, the latest runs": 1,
        "max_instances is ignored: runs may overlap; @handler(limit=...) limits them": 1,
    }
    bounded = bridge.get_series("apscheduler-bounded")
    assert bounded is not None
    schedule = bounded.schedule
    assert schedule is not None
    assert (from_ms(schedule.start or 0).isoformat(), from_ms(schedule.until or 0).isoformat()) == (
        "2030-12-31T23:00:00+00:00", "2031-12-31T23:00:00+00:00",
    )  # fmt: skip
    assert (schedule.jitter, schedule.overlap) == (5000, "skip")
    quarter = bridge.get_series("apscheduler-quarter")
    assert quarter is not None
    assert quarter.schedule is not None
    assert (quarter.args, quarter.kwargs) == ([1, "x"], {"to": None})
    assert quarter.schedule.overlap == "allow"
    [tick] = [task for task in bridge.list().tasks if task.id.startswith("apscheduler-quarter@")]
    with closing(sqlite3.connect(str(database.database))) as connection:
        [[at]] = connection.execute("SELECT next_run_time FROM apscheduler_jobs WHERE id='quarter'")
    assert tick.due == from_ms(int(at * 1000))
    once = bridge.get("apscheduler-once")
    assert once is not None
    assert once.due == from_ms(DUE)
    paused = bridge.get_series("apscheduler-paused")
    assert paused is not None
    assert paused.paused
    again = import_from(*words, url=url)
    assert (again["created"], again["kept"], again["left"]) == (0, 4, 2)


def test_what_has_no_counterpart_is_refused(database: URL, url: str, bridge: Bridge) -> None:
    jobs = [
        cron("both", day="1-7", day_of_week="mon"),
        cron("seconds", second="*/10"),
        cron("week", week=7),
        cron("second", day="2nd tue", day_of_week="tue"),
        {"id": "or", "trigger": "or"},
        {"id": "typed", "trigger": "interval", "days": 1, "typed": True},
        {"id": "short", "trigger": "interval", "seconds": 0.5},
    ]
    libraries.apscheduler(database, jobs)
    done = import_from("apscheduler", str(database), *MAPPED, url=url, code=2)
    assert (done["created"], done["refused"]) == (0, 7)
    found = reasons(done)
    assert found["its trigger has second=*/10: here cron expressions have none"] == 1
    assert found["its trigger has week=7: here cron expressions have none"] == 1
    assert found["among its arguments is an object: decimal.Decimal"] == 1
    assert found["every=0.5: an interval is at least a second"] == 1
    assert any(reason.startswith("its trigger is OrTrigger") for reason in found)
    assert [jobs for reason, jobs in found.items() if "must both match there" in reason] == [2]


def test_whatever_stands_in_a_row_is_refused_or_made(
    database: URL, url: str, bridge: Bridge
) -> None:
    libraries.apscheduler(database, [job for job, _ in CRONS])
    draw = random.Random(7)  # noqa: S311 - any numbers do
    with closing(sqlite3.connect(str(database.database))) as connection, connection:
        [[state]] = connection.execute("SELECT job_state FROM apscheduler_jobs WHERE id='a'")
        for number in range(2000):
            spoilt = bytearray(state)
            for _ in range(draw.randint(1, 3)):
                spoilt[draw.randrange(2, len(spoilt))] = draw.randrange(256)
            row = (f"spoilt-{number}", 1e9 if number % 2 else None, bytes(spoilt))
            connection.execute("INSERT INTO apscheduler_jobs VALUES (?, ?, ?)", row)
        odd = [("text", 1e9, "x"), ("empty", 1e9, b""), ("ever", float("inf"), state)]
        connection.executemany("INSERT INTO apscheduler_jobs VALUES (?, ?, ?)", odd)
    words = ("apscheduler", str(database), *MAPPED, "--disabled", "--dry-run")
    done = import_from(*words, url=url, code=2)
    assert done["would_create"] + done["left"] + done["refused"] == 2003 + len(CRONS)
    assert reasons(done)["its row is not as APScheduler writes it"] == 1

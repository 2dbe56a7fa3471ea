"""Which periodic tasks of django-celery-beat become series or tasks, and which are left and why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from expirebridge import Bridge
from expirebridge.task.task import from_ms
from tests.importing import libraries
from tests.importing.libraries import HOUR
from tests.importing.reports import import_from, reasons
from tests.kit.databases import POSTGRESQL, SQLITE, binary_of, database_of

pytestmark = pytest.mark.rest

DUE = 1_956_528_000_000
"""In 2032."""
DAY = 24 * HOUR
MAPPED = ("--map", "shop.tasks.report=mail.report")


@pytest.fixture(params=[SQLITE, POSTGRESQL])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[URL]:
    name = request.param
    if name != SQLITE and binary_of(name) is None:
        pytest.skip(f"needs {name}")
    with database_of(name, tmp_path) as server:
        yield server.new_database()


def periodic(name: str, task: str = "mail.send", **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": task, **fields}


def source_of(database: URL) -> str:
    if database.get_backend_name() == POSTGRESQL:
        database = database.set(drivername="postgresql+psycopg")
    return database.render_as_string(hide_password=False)


def test_schedules_become_series_and_one_off_tasks_become_tasks(
    database: URL, url: str, bridge: Bridge, now_ms: int
) -> None:
    call = {"args": "[7]", "kwargs": '{"full": true}', "queue": "slow", "headers": '{"a": 1}'}
    nightly = {"minute": "30", "hour": "2,\t3", "timezone": "Europe/Berlin"}
    tasks = [
        periodic(
            "nightly report", "shop.tasks.report", crontab=nightly, expire_seconds=300, **call
        ),
        periodic(
            "poll", interval={"every": 15, "period": "minutes"}, last_run_at=now_ms - 10 * 60_000
        ),
        periodic(
            "later", interval={"every": 1, "period": "days"}, start_time=DUE, expires=DUE + 2 * DAY
        ),
        periodic("clocked", clocked={"clocked_time": DUE + 5}, one_off=True),
        periodic(
            "once", crontab={"minute": "0", "hour": "9", "month_of_year": "*/3"}, one_off=True
        ),
    ]
    libraries.django_celery_beat(database, tasks)
    source = source_of(database)
    words = ("django-celery-beat", source, *MAPPED)
    dry = import_from(*words, "--dry-run", url=url)
    assert dry["would_create"] == 5
    assert bridge.count().pending == 0
    assert bridge.list_series().series == []
    done = import_from(*words, url=url)
    assert (done["created"], done["kept"]) == (5, 0)
    assert done["series"] == dry["series"]
    assert done["changes"] == {"ignored: queue": 1, "ignored: headers": 1}
    nightly_series = bridge.get_series("beat-1-nightly-report")
    assert nightly_series is not None
    assert str(nightly_series.schedule) == "30 2,3 * * * Europe/Berlin"
    assert (nightly_series.func, nightly_series.args, nightly_series.kwargs) == (
        "mail.report", [7], {"full": True},
    )  # fmt: skip
    shown = {one["series"]: one for one in done["series"]}
    # Ten minutes of the fifteen have passed.
    assert shown["beat-2-poll"]["first_tick"] == from_ms(now_ms + 5 * 60_000).isoformat()
    later = bridge.get_series("beat-3-later")
    assert later is not None
    assert later.schedule is not None
    assert (later.next, later.schedule.until) == (from_ms(DUE), DUE + 2 * DAY)
    clocked = bridge.get("beat-4-clocked")
    assert clocked is not None
    assert clocked.due == from_ms(DUE + 5)
    once = bridge.get("beat-5-once")
    assert once is not None
    assert once.due is not None
    assert (once.due.hour, once.due.month % 3) == (9, 1)
    again = import_from(*words, url=url)
    assert (again["created"], again["kept"], again["series"]) == (0, 5, [])


def test_what_is_left_and_what_is_refused(
    database: URL, url: str, bridge: Bridge, now_ms: int
) -> None:
    hourly = {"every": 1, "period": "hours"}
    tasks = [
        periodic("sun", solar={"event": "sunrise", "latitude": 1, "longitude": 2}),
        periodic("micro", interval={"every": 5, "period": "microseconds"}),
        periodic("both", crontab={"minute": "0", "day_of_week": "mon", "day_of_month": "1"}),
        periodic("wrap", crontab={"minute": "50-10"}),
        periodic("arguments", interval=hourly, args='{"a": 1}'),
        periodic("ran", crontab={"minute": "1"}, one_off=True, total_run_count=1),
        periodic("expired", interval=hourly, expires=now_ms - 1000),
        periodic("celery.backend_cleanup", "celery.backend_cleanup", crontab={"minute": "2"}),
        periodic("off", crontab={"minute": "3"}, enabled=False),
        periodic("off once", clocked={"clocked_time": DUE}, one_off=True, enabled=False),
    ]
    libraries.django_celery_beat(database, tasks)
    words = ("django-celery-beat", source_of(database))
    done = import_from(*words, url=url, code=2)
    assert (done["created"], done["left"], done["refused"]) == (0, 5, 5)
    found = reasons(done)
    assert found["disabled; --disabled makes them, paused"] == 2
    assert found["to run once, which it did"] == 1
    assert found["expired"] == 1
    assert found["at sunrise or sunset: here no schedule follows the sun"] == 1
    assert found["its args are not a JSON array"] == 1
    assert any(reason.startswith("cron='50-10 * * * *'") for reason in found)
    assert any("must both match there" in reason for reason in found)
    paused = import_from(*words, "--disabled", url=url, code=2)
    [series] = paused["series"]
    assert (series["series"], series["paused"]) == ("beat-9-off", True)
    assert reasons(paused)["disabled, and to run once: make it when it is wanted"] == 1
    kept = bridge.get_series("beat-9-off")
    assert kept is not None
    assert kept.paused

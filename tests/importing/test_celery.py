"""What of Celery's messages comes along, and what is left and why."""

import pytest
import redis

from expirebridge import Bridge
from expirebridge.task.task import from_ms
from tests.importing import libraries
from tests.importing.libraries import HOUR
from tests.importing.reports import import_from, reasons

pytestmark = pytest.mark.rest

MAPPED = ("--map", "mail.tasks.send=mail.send", "--map", "mail.tasks.flaky=mail.flaky")


def test_messages_that_a_worker_holds_and_those_in_queues(
    old: str, url: str, bridge: Bridge, now_ms: int
) -> None:
    due = now_ms + HOUR
    libraries.celery(old, send=[{"args": [n], "eta_ms": due + n} for n in range(3)], flaky=1)
    with libraries.celery_worker(old), redis.Redis.from_url(old) as client:
        # The one that is tried again comes back last, with an ETA.
        libraries.until_held(client, b'"retries": 1')
    more = [
        {"args": [3], "kwargs": {"to": "é"}, "eta_ms": due + 3, "priority": 6},
        {"args": [4], "eta_ms": due + 4, "queue": "slow"},
    ]
    libraries.celery(old, send=more)
    assert import_from("celery", old, *MAPPED, "--queue", "slow", url=url)["created"] == 1
    assert import_from("celery", old, *MAPPED, url=url)["created"] == 5
    tasks = bridge.list().tasks
    sends = [task for task in tasks if task.func == "mail.send"]
    assert [task.args for task in sends] == [[n] for n in range(5)]
    assert [task.due for task in sends] == [from_ms(due + n) for n in range(5)]
    assert sends[3].kwargs == {"to": "é"}
    [flaky] = [task for task in tasks if task.func == "mail.flaky"]
    assert flaky.attempt == 1


def test_times_and_limits(
    old: str, url: str, bridge: Bridge, client: redis.Redis, now_ms: int
) -> None:
    due = now_ms + HOUR
    sent = [
        {"args": [1], "eta_ms": due, "expires_ms": due + 5000, "time_limit": 30},
        {"args": [2], "eta_ms": due, "expires_ms": due - 1},
        {"args": [3], "eta_ms": due, "expires_ms": now_ms - 1},
        {"args": [4], "naive_eta": "2031-07-01T12:00:00"},
        {"args": [5], "eta_ms": now_ms - 1000},
        {"args": [6]},
    ]
    libraries.celery(old, send=sent)
    done = import_from("celery", old, *MAPPED, "--timezone", "Europe/Berlin", url=url)
    assert (done["created"], done["left"]) == (3, 3)
    assert reasons(done) == {
        "expired, or expiring before they are due": 2,
        "waiting for a worker, not for a time; --waiting takes them, too": 1,
    }
    assert done["changes"] == {"an eta without a zone is taken for one of Europe/Berlin": 1}
    overdue, limited, naive = bridge.list().tasks
    assert overdue.args == [5]
    assert limited.args == [1]
    record = client.hgetall(f"expirebridge:task:{limited.id}")
    assert (record[b"timeout"], record[b"misfire"]) == (b"30", b'["skip",5.0]')
    assert naive.due is not None
    assert naive.due.isoformat() == "2031-07-01T10:00:00+00:00"


def test_what_json_cannot_say_and_what_would_be_lost(
    old: str, url: str, bridge: Bridge, now_ms: int
) -> None:
    due = now_ms + HOUR
    sent = [
        {"typed": True, "eta_ms": due},
        {"args": [1], "eta_ms": due, "serializer": "pickle"},
        {"args": [2], "eta_ms": due, "compression": "gzip"},
    ]
    libraries.celery(old, send=sent, canvas=True)
    done = import_from("celery", old, *MAPPED, url=url, code=2)
    assert (done["created"], done["left"], done["refused"]) == (3, 0, 4)
    assert reasons(done) == {
        "its body is application/x-python-serialize, not application/json": 1,
        "its body is compressed (application/x-gzip)": 1,
        "it has chain: nothing here would run what follows it": 1,
        "it has callbacks: nothing here would run what follows it": 1,
    }
    assert done["changes"] == {
        "a datetime, UUID, Decimal or bytes among the arguments becomes text": 1,
        "a group is dissolved: each task runs by itself": 2,
    }
    typed = bridge.list().tasks[0]
    assert typed.args == [
        "2031-01-01T00:00:00+00:00", "2031-01-01", "1.50", "00000000-0000-0000-0000-000000000007",
        "hi",
    ]  # fmt: skip


def test_a_prefix_of_all_keys(old: str, url: str, now_ms: int) -> None:
    sent = [{"args": [1], "eta_ms": now_ms + HOUR}]
    libraries.celery(old, transport={"global_keyprefix": "shop:"}, send=sent)
    assert import_from("celery", old, *MAPPED, "--source-prefix", "shop:", url=url)["created"] == 1

"""What of arq's jobs comes along, and what is left and why."""

import pytest

from expirebridge import Bridge
from tests.importing import libraries
from tests.importing.libraries import HOUR
from tests.importing.reports import import_from, reasons

pytestmark = pytest.mark.rest

MAPPED = ("--map", "send=mail.send", "--map", "flaky=mail.flaky")


def test_jobs_with_arguments_ids_and_attempts(
    old: str, url: str, bridge: Bridge, now_ms: int
) -> None:
    due = now_ms + HOUR
    jobs = [
        {"name": "send", "args": [1, None], "kwargs": {"a": [True, 1.5]}, "due_ms": due},
        {"name": "send", "nested": [1, [2]], "due_ms": due + 1, "id": "remind-7"},
        {"name": "send", "due_ms": due + 2, "queue": "slow"},
    ]
    libraries.arq(old, enqueue=jobs)
    libraries.arq(old, enqueue=[{"name": "flaky"}], work=True)
    assert import_from("arq", old, *MAPPED, url=url)["created"] == 3
    assert import_from("arq", old, *MAPPED, "--queue", "slow", url=url)["created"] == 1
    by_func = {task.func: task for task in bridge.list().tasks}
    assert by_func["mail.flaky"].attempt == 1
    first, second, third = (task for task in bridge.list(func="mail.send").tasks)
    assert (first.args, first.kwargs) == ([1, None], {"a": [True, 1.5]})
    assert second.args == [[1, [2]]]
    assert second.id.startswith("arq-remind-7:")
    assert third.args == []


def test_what_is_left_and_what_is_refused(old: str, url: str, bridge: Bridge, now_ms: int) -> None:
    due = now_ms + HOUR
    jobs = [
        {"name": "send"},
        {"name": "cron:tick", "due_ms": due},
        *(
            {"name": "send", "typed": [kind], "due_ms": due}
            for kind in ("datetime", "set", "bytes")
        ),
    ]
    libraries.arq(old, enqueue=jobs)
    libraries.arq(old, enqueue=[{"name": "send", "due_ms": due}], json=True)
    done = import_from("arq", old, *MAPPED, url=url, code=2)
    assert (done["created"], done["left"], done["refused"]) == (0, 2, 4)
    more = "its pickle holds more than plain data"
    assert reasons(done) == {
        "waiting for a worker, not for a time; --waiting takes them, too": 1,
        "the next runs of cron jobs; schedule them again": 1,
        f"{more}: a class, such as datetime": 1,
        f"{more}: a set": 1,
        f"{more}: bytes": 1,
        "it is not pickled: another serializer wrote it": 1,
    }
    assert (
        import_from("arq", old, *MAPPED, "--waiting", "--overdue", url=url, code=2)["created"] == 1
    )
    assert bridge.count().pending == 1

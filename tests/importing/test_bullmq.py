"""What of BullMQ's jobs comes along, and what is left and why."""

from typing import Any

import pytest
import redis

from expirebridge import Bridge, InvalidSetting
from tests.importing import libraries
from tests.importing.libraries import HOUR
from tests.importing.reports import import_from, reasons
from tests.kit.invoked import invoke, invoke_json

pytestmark = pytest.mark.rest


def test_a_job_with_its_queue_name_data_retries_and_attempts(
    old: str, url: str, bridge: Bridge, client: redis.Redis, now_ms: int
) -> None:
    due = now_ms + HOUR
    jobs = [
        {"queue": "mail", "name": "send", "data": {"user": 1}, "due": due,
         "opts": {"attempts": 4, "backoff": {"type": "exponential", "delay": 1500}, "priority": 3}},
        {"queue": "mail", "name": "send-welcome", "data": [1, None], "due": due + 1,
         "opts": {"jobId": "own id", "attempts": 2, "backoff": 2000}},
        {"queue": "shop", "name": "anything", "data": "text", "due": due + 2,
         "opts": {"attempts": 2, "backoff": {"type": "mine"}}},
    ]  # fmt: skip
    libraries.bullmq(old, add=jobs)
    done = import_from(
        "bullmq",
        old,
        "--map",
        "mail.send-welcome=mail.welcome",
        "--map",
        "shop=shop/orders.rate",
        url=url,
    )
    assert done["created"] == 3
    first, second, third = bridge.list().tasks
    assert (first.func, first.args) == ("mail.send", [{"user": 1}])
    assert (second.func, second.args) == ("mail.welcome", [[1, None]])
    assert (third.func, third.args) == ("shop/orders.rate", ["text"])
    assert first.id.startswith("bullmq-mail:1:")
    assert second.id.startswith("bullmq-")
    retries = [
        client.hget(f"expirebridge:task:{id}", "retry") for id in (first.id, second.id, third.id)
    ]
    assert retries == [b"[1.5,3.0,6.0]", b"[2.0]", None]
    assert done["changes"] == {
        "a priority is ignored": 1,
        "a backoff of your own becomes the handler's retry policy": 1,
    }


def test_a_job_that_failed_goes_on_with_the_attempts_that_are_left(
    old: str, url: str, bridge: Bridge
) -> None:
    opts = {"attempts": 3, "backoff": HOUR}
    libraries.bullmq(
        old, add=[{"queue": "mail", "name": "send", "data": 1, "opts": opts}], fail=["mail"]
    )
    assert import_from("bullmq", old, url=url)["created"] == 1
    [task] = bridge.list().tasks
    assert task.attempt == 1


def test_what_does_not_wait_for_a_time_is_left_and_counted(
    old: str, url: str, bridge: Bridge
) -> None:
    waits = [
        {"queue": "mail", "name": "send", "data": n, "opts": {"priority": n}} for n in range(3)
    ]
    child = {"name": "send", "queueName": "mail", "data": {}, "opts": {"delay": HOUR}}
    libraries.bullmq(
        old, add=waits, schedulers=[{"queue": "mail", "id": "daily", "every": 86_400_000}],
        flows=[{"name": "parent", "queueName": "mail", "children": [child]}],
    )  # fmt: skip
    done = import_from("bullmq", old, url=url, code=2)
    assert (done["created"], done["left"], done["refused"]) == (0, 5, 1)
    assert reasons(done) == {
        "waiting for a worker, not for a time; --waiting takes them, too": 3,
        "waiting for the children of a flow": 1,
        "the next runs of job schedulers; schedule them again": 1,
        "a child of a flow: here no parent would wait for it": 1,
    }
    assert bridge.count().pending == 0
    done = import_from("bullmq", old, "--waiting", "--overdue", url=url, code=2)
    assert (done["created"], done["left"]) == (3, 2)
    assert bridge.count().overdue == 3


def test_queues_and_prefixes(old: str, url: str, now_ms: int) -> None:
    def job(queue: str) -> dict[str, Any]:
        return {"queue": queue, "name": "send", "data": 1, "due": now_ms + HOUR}

    libraries.bullmq(old, prefix="{mine}", add=[job("mail"), job("shop")])
    with pytest.raises(InvalidSetting, match=r"no queue of BullMQ was found, .* --source-prefix"):
        invoke("import", "--from", "bullmq", old, url=url)
    words = ("import", "--from", "bullmq", old, "--source-prefix", "{mine}")
    with pytest.raises(InvalidSetting, match="is named post; there are mail, shop"):
        invoke(*words, "--queue", "post", url=url)
    done = invoke_json(*words, "--queue", "shop", url=url)
    assert list(done["functions"]) == ["shop.send"]
    assert invoke_json(*words, url=url)["created"] == 1

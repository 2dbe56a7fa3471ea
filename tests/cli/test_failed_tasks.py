"""Failed tasks from the terminal: found by filters, retried and forgotten in bulk."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from expirebridge import Bridge, InvalidTask, State
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import reconciling
from tests.kit.invoked import end_due_tasks, invoke, invoke_json, run


@pytest.fixture
def failed(url: str, bridge: Bridge, store: Store) -> None:
    """Five failed tasks, m0 to m2 of mail.send and r0, r1 of orders.rate; m0 failed an hour ago."""
    for func, id in [*(("mail.send", f"m{n}") for n in range(3)), ("orders.rate", "r0"),
                     ("orders.rate", "r1")]:  # fmt: skip
        bridge.make_task(func, [id], 0, id=id, tags=["night"] if id in {"m1", "r1"} else [])
    assert len(end_due_tasks(store)) == 5
    hour_ago = int((datetime.now(UTC) - timedelta(hours=1)).timestamp() * 1000)
    store.client.hset("expirebridge:task:m0", "ended", hour_ago)
    bridge.make_task("mail.send", [], "1h", id="waits")


def ids(*words: str, url: str) -> set[str]:
    return {task["id"] for task in invoke_json(*words, url=url)["tasks"]}


@pytest.mark.usefixtures("failed")
def test_they_are_found_by_function_tag_and_time(url: str) -> None:
    assert ids("failed", "list", url=url) == {"m0", "m1", "m2", "r0", "r1"}
    assert ids("failed", "list", "--func", "mail.send", url=url) == {"m0", "m1", "m2"}
    assert ids("failed", "list", "--tag", "night", url=url) == {"m1", "r1"}
    assert ids("failed", "list", "--since", "30m", "--func", "mail.send", url=url) == {"m1", "m2"}
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    assert ids("failed", "list", "--since", soon, url=url) == set()
    assert ids("list", "--failed-since", "2h", url=url) == {"m0", "m1", "m2", "r0", "r1"}
    assert "boom" in invoke("failed", "list", url=url)


@pytest.mark.usefixtures("failed")
def test_they_start_anew_and_only_those_that_match(url: str, bridge: Bridge) -> None:
    told = invoke("failed", "retry", "--func", "mail.send", "--since", "30m", "--yes", url=url)
    assert told == "due now  2\n"
    states = {id: bridge.get(id).state for id in ("m0", "m1", "m2", "r0", "r1", "waits")}  # type: ignore[union-attr]
    assert states == {
        "m0": "failed", "m1": "pending", "m2": "pending", "r0": "failed", "r1": "failed",
        "waits": "pending",
    }  # fmt: skip
    assert bridge.count().overdue == 2
    assert invoke_json("failed", "retry", "--yes", url=url) == {"due now": 3}
    assert invoke_json("failed", "retry", url=url) == {}


@pytest.mark.usefixtures("failed")
def test_those_of_a_group_are_found_too(url: str, bridge: Bridge, store: Store) -> None:
    bridge.make_group("import-7", [{"func": "mail.send", "delay": 0}] * 3)
    end_due_tasks(store)
    words = ("--group", "import-7")
    members = {f"import-7@g{number}" for number in range(3)}
    assert ids("failed", "list", *words, url=url) == members
    bridge.run_now("import-7@g2")
    assert invoke("failed", "purge", *words, "--yes", url=url) == "forgotten  2\n"
    end_due_tasks(store)
    assert invoke("failed", "retry", *words, "--yes", url=url) == "due now  1\n"
    assert bridge.get("import-7@g2").state is State.PENDING  # type: ignore[union-attr]
    assert bridge.count().failed == 5 + 2


@pytest.mark.usefixtures("failed")
def test_they_are_forgotten_in_the_next_pass(url: str, bridge: Bridge, store: Store) -> None:
    assert invoke("failed", "purge", "--func", "orders.rate", "--yes", url=url) == "forgotten  2\n"
    # Their last run was a moment ago: a doorbell of it may still be on its way.
    store.run(reconciling.sweep(Settings()))
    assert bridge.count().failed == 5
    for id in ("r0", "r1", "m1"):
        store.client.hset(f"expirebridge:task:{id}", "ended", 1)
    assert bridge.purge_failed(["r0", "r1", "m1", "waits", "nobody"]) == {
        "forgotten": 3, "not failed": 1, "not found": 1
    }  # fmt: skip
    store.run(reconciling.sweep(Settings()))
    assert ids("failed", "list", url=url) == {"m0", "m2"}
    assert store.client.exists("expirebridge:tag:night") == 0
    assert bridge.get("waits") is not None


@pytest.mark.usefixtures("failed")
def test_it_asks_first_and_in_a_pipe_it_wants_to_be_told(url: str, bridge: Bridge) -> None:
    for verb in ("retry", "purge"):
        result = run("failed", verb, url=url)
        assert (result.returncode, result.stdout) == (2, "")
        assert re.search(r"5 failed tasks\? stdin is not a terminal: add --yes\n", result.stderr)
    assert bridge.count().failed == 5
    bridge.make_task("mail.send", [], "1h", id="x", tags=["c9"])
    invoke("cancel", "--tag", "c9", url=url, code=2)
    assert bridge.count().cancelled == 0
    assert "cancelled  1" in invoke("cancel", "--tag", "c9", "--yes", url=url)


def test_more_than_a_page_is_retried_once_each(url: str, bridge: Bridge, store: Store) -> None:
    bridge.make_tasks([{"func": "mail.send", "delay": 0} for _ in range(450)])
    end_due_tasks(store)
    assert len(bridge.find_failed(func="mail.send")) == 450
    seen: list[int] = []
    done = bridge.retry_failed(
        bridge.find_failed(), progress=lambda done: seen.append(sum(done.values()))
    )
    assert done == {"due now": 450}
    assert seen == [100, 200, 300, 400]


def test_waiting_tasks_are_found_by_when_they_are_due_a_page_at_a_time(
    url: str, bridge: Bridge
) -> None:
    for n in range(1, 6):
        bridge.make_task("mail.send", [], n * 60, id=f"t{n}")
    assert ids("list", "--state", "pending", "--due-before", "210s", url=url) == {"t1", "t2", "t3"}
    until = (datetime.now(UTC) + timedelta(seconds=90)).isoformat()
    assert ids("list", "--state", "pending", "--due-before", until, url=url) == {"t1"}
    pages = [
        invoke_json("list", "--state", "pending", "--limit", "2", "--page", page, url=url)
        for page in ("1", "2", "3", "4")
    ]
    assert [[task["id"] for task in page["tasks"]] for page in pages] == [
        ["t1", "t2"], ["t3", "t4"], ["t5"], []
    ]  # fmt: skip
    assert [page["complete"] for page in pages] == [False, False, True, True]


def test_what_cannot_be_a_filter_is_refused(bridge: Bridge) -> None:
    naive = datetime(2031, 1, 1)
    for wrong in (
        {"due_before": naive}, {"failed_since": naive}, {"failed_since": 7},
        {"failed_since": datetime.now(UTC), "state": "pending"},
    ):  # fmt: skip
        with pytest.raises(InvalidTask):
            bridge.list(**wrong)
    with pytest.raises(InvalidTask):
        bridge.find_failed(func="../x")
    assert bridge.list(state=State.FAILED).complete

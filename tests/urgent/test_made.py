"""How urgent tasks are made, shown and refused."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, InvalidTask, Outcome
from expirebridge.store.client import Store
from expirebridge.urgent.calls import declare_urgent
from tests.kit.invoked import invoke, invoke_json, run
from tests.kit.steps import PREFIX
from tests.urgent.steps import FUNC, backlog, index_of, make, taken

pytestmark = pytest.mark.servers("oldest")

ITEM = {"func": FUNC, "args": [1], "delay": 0}


async def make_awaited(url: str) -> list[str]:
    bridge = AsyncBridge(url)
    task = await bridge.make_task(FUNC, [1], 0, urgent=True)
    await bridge.aclose()
    return [task.id]


WAYS: dict[str, Callable[[str, Bridge], list[str]]] = {
    "an id of its own": lambda _, bridge: [make(bridge, "u").id],
    "a drawn id": lambda _, bridge: [bridge.make_task(FUNC, [1], 0, urgent=True).id],
    "many": lambda _, bridge: [
        task.id for task in bridge.make_tasks([ITEM | {"urgent": True}, ITEM]) if task.urgent
    ],
    "many with ids": lambda _, bridge: [
        task.id
        for task in bridge.make_tasks([ITEM | {"id": "v"}, ITEM | {"id": "u", "urgent": True}])
        if task.urgent
    ],
    "many that are the first": lambda _, bridge: [
        min(task.id for task in bridge.make_tasks([ITEM | {"urgent": True}] * 2))
    ],
    "awaited": lambda url, _: asyncio.run(make_awaited(url)),
    "the command": lambda url, _: [
        invoke_json("make", FUNC, "[1]", "--in", "0s", "--urgent", url=url)["id"]
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_makes_a_task_takes_it(
    way: str, url: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    backlog(bridge)
    [id] = WAYS[way](url, bridge)
    assert index_of(client).keys() == {task.id for task in bridge.list().tasks if task.urgent}
    read = bridge.get(id)
    assert read is not None
    assert read.urgent
    assert taken(store) == [id]


def test_all_faces_show_it(url: str, bridge: Bridge) -> None:
    task = make(bridge, "u", 60)
    make(bridge, "v", 60, urgent=False)
    assert task.urgent
    assert {one.id: one.urgent for one in bridge.list().tasks} == {"u": True, "v": False}
    assert invoke_json("show", "u", url=url)["urgent"] is True
    assert re.search(r"urgent +(yes|true)", invoke("show", "u", url=url), re.IGNORECASE)
    assert invoke_json("show", "v", url=url)["urgent"] is False


@pytest.mark.parametrize("value", [1, "yes", None])
def test_what_is_neither_true_nor_false_is_refused(value: Any, bridge: Bridge) -> None:
    with pytest.raises(InvalidTask, match=f"urgent={value!r}: True or False"):
        make(bridge, "u", urgent=value)


def test_what_comes_again_is_marked_at_its_handler(bridge: Bridge) -> None:
    with pytest.raises(TypeError, match=r"mark the handler: @handler\(urgent=True\)"):
        bridge.watch("w", FUNC, ttl="1m", urgent=True)  # type: ignore[call-arg]


def test_only_what_is_replaced_changes(bridge: Bridge, client: redis.Redis) -> None:
    make(bridge, "a", 60, urgent=False)
    for what, outcome in (("keep", Outcome.KEPT), ("extend", Outcome.EXTENDED)):
        assert make(bridge, "a", 60, if_exists=what).outcome is outcome
        assert index_of(client) == {}
    assert make(bridge, "a", 60, if_exists="replace").urgent
    assert index_of(client).keys() == {"a"}
    make(bridge, "a", 60, if_exists="extend", urgent=False)
    assert index_of(client).keys() == {"a"}


def test_tasks_of_a_marked_handler_are_urgent_from_then_on(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    make(bridge, "before", 60, urgent=False)
    store.run(declare_urgent([FUNC], ["other.run"]))
    make(bridge, "a", 60, urgent=False)
    drawn = bridge.make_task(FUNC, [1], 60).id
    many = [task.id for task in bridge.make_tasks([ITEM | {"delay": 60}] * 2)]
    bridge.make_task("other.run", (), 60)
    assert index_of(client).keys() == {"a", drawn, *many}
    store.run(declare_urgent([], [FUNC]))
    make(bridge, "after", 60, urgent=False)
    assert index_of(client).keys() == {"a", drawn, *many}
    store.run(declare_urgent(["third.run"], []))  # who does not have a function says nothing of it
    assert client.hkeys(f"{PREFIX}:urgent_functions") == [b"third.run"]


def test_what_uses_none_has_nothing_of_it(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    store.run(declare_urgent([], [FUNC]))
    backlog(bridge)
    taken(store, 9)
    assert "urgent" not in str(client.keys(f"{PREFIX}:*"))
    assert client.hget(f"{PREFIX}:meta", "features") is None
    assert b"urgent" not in client.hkeys(f"{PREFIX}:task:old0")


def test_it_is_exported_and_imported(
    url: str, bridge: Bridge, store: Store, client: redis.Redis, tmp_path: Path
) -> None:
    make(bridge, "u", 60)
    make(bridge, "v", 60, urgent=False)
    file = tmp_path / "tasks.ndjson"
    invoke("export", str(file), url=url)
    lines = {line["id"]: line for line in map(json.loads, file.read_text().splitlines())}
    assert lines["u"]["urgent"] is True
    assert "urgent" not in lines["v"]
    client.flushdb()
    invoke("import", str(file), url=url)
    assert index_of(client).keys() == {"u"}
    file.write_text(json.dumps(lines["u"] | {"urgent": 1}))
    assert "urgent: write true or false" in run("import", str(file), url=url).stderr


def test_among_themselves_the_earliest_is_first(bridge: Bridge, store: Store) -> None:
    backlog(bridge)
    for id in ("b", "a", "c"):
        make(bridge, id)
    make(bridge, "later", 60)
    found = taken(store, 9)
    assert sorted(found[:3]) == ["a", "b", "c"]
    assert found[3:] == ["old0", "old1", "old2", "old3", "old4"]

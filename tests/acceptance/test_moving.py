"""Tasks moved from one database to another, by export and import."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, InvalidTask, Task
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.store import Store
from tests.kit.invoked import end_due_tasks, invoke
from tests.kit.processes import COMMAND, run
from tests.kit.servers import AnyServer

TOLD = {"id", "func", "args", "kwargs", "key", "state", "tags", "attempt", "error"}


@pytest.fixture
def new_url(server: AnyServer) -> str:
    """Another database: to the commands it is another server."""
    return f"redis://127.0.0.1:{server.port}/3"


@pytest.fixture
def new(new_url: str) -> Iterator[Bridge]:
    with Bridge(new_url) as bridge:
        yield bridge


def facts(task: Task | None) -> dict[str, Any]:
    assert task is not None
    return {name: getattr(task, name) for name in TOLD}


def test_all_that_waits_is_moved_as_it_is(
    url: str, new_url: str, bridge: Bridge, new: Bridge, store: Store, client: redis.Redis,
    tmp_path: Path,
) -> None:  # fmt: skip
    bridge.make_task("mail.send", [42, "é?\n"], "1h", id="plain", tags=["a", "b"])
    bridge.make_task("mail.send", ["x" * 2000], "1d", id="long", timeout=1.5, retry=[5, 60])
    bridge.make_task("mail.send", kwargs={"user": 2**63}, delay="2h", id="named")
    bridge.watch("watched", "alerts.silent", ["w"], ttl="30d")
    bridge.make_task("mail.send", [], "2h", id="paused")
    bridge.pause("paused")
    bridge.make_task("mail.send", [], "1h", id="taken")
    foreign = b"taken:?orders.rate?[ 1,  2 ]"
    client.set(foreign, "", px=3_600_000)
    hint = calls.Hint(foreign, "taken", foreign.partition(b":?")[2], calls.Heard.LIVE)
    store.run(calls.adopt([hint], Settings()))
    bridge.make_task("mail.send", [], 0, id="done")
    end_due_tasks(store, "succeeded", "")
    bridge.make_task("mail.send", [], 0, id="tried")
    end_due_tasks(store, "retry", "once", delay=3600)
    file = tmp_path / "tasks.ndjson"
    invoke("export", str(file), url=url)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()].count("paused") == 1
    told = invoke("import", str(file), url=new_url)
    assert told == "created  8\nkept     0\n"
    ids = [task.id for task in bridge.list(state="pending").tasks]
    assert len(ids) == 7
    for id in [*ids, "paused"]:
        old = bridge.get(id)
        moved = new.get(id)
        assert facts(moved) == facts(old)
        if id != "paused":
            assert moved is not None
            assert old is not None
            assert moved.due == old.due
    assert new.get("done") is None
    new_client = redis.Redis.from_url(new_url)
    for id in ("plain", "long", "watched"):
        record = [one.hgetall(f"expirebridge:task:{id}") for one in (store.client, new_client)]
        for fields in record:
            del fields[b"made"]
            fields.pop(b"nonce", None)
        assert record[0] == record[1]
    left = [one.hgetall("expirebridge:task:paused") for one in (store.client, new_client)]
    assert abs(int(left[0][b"left"]) - int(left[1][b"left"])) < 60_000
    assert new_client.pttl(foreign) > 0
    assert set(new_client.smembers("expirebridge:tag:a")) == {b"plain"}
    new_client.close()


def test_a_broken_import_goes_on_and_makes_nothing_twice(
    url: str, new_url: str, bridge: Bridge, new: Bridge, tmp_path: Path
) -> None:
    bridge.make_tasks([{"func": "mail.send", "args": [n], "delay": 3600} for n in range(450)])
    file = tmp_path / "tasks.ndjson"
    invoke("export", str(file), url=url)
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:330]) + b"no task\n" + b"".join(lines[330:]))
    result = run("import", file, url=new_url)
    assert result.returncode == 2
    assert f"the line at byte {len(b''.join(lines[:330]))} is no exported task" in result.stderr
    assert result.stdout == "created  320\nkept     0\n"
    # The same file again: what was imported is not even read.
    assert run("import", file, url=new_url).stdout == "created  0\nkept     0\n"
    # A file that changed is read from its beginning; what is known is left, finished or not.
    file.write_bytes(whole)
    first = json.loads(lines[0])["id"]
    new.run_now(first)
    with redis.Redis.from_url(new_url) as client:
        store = Store(client, prefix="expirebridge")
        assert end_due_tasks(store, "succeeded", "") == [first]
    assert invoke("import", str(file), url=new_url) == "created  130\nkept     320\n"
    assert invoke("import", str(file), url=new_url) == "created  0\nkept     0\n"
    counts = new.count()
    assert (counts.pending, counts.succeeded) == (449, 1)
    # Another server has had nothing of it.
    assert invoke("import", str(file), url=new_url[:-1] + "4") == "created  450\nkept     0\n"


def test_through_a_pipe(url: str, new_url: str, bridge: Bridge, new: Bridge) -> None:
    bridge.make_task("mail.send", [1], "1h", id="a")
    export = subprocess.Popen(
        [*COMMAND, "export", "--url", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    into = subprocess.run(
        [*COMMAND, "import", "-", "--url", new_url, "--json"], stdin=export.stdout,
        capture_output=True, check=True, env=dict(os.environ),
    )  # fmt: skip
    _, told = export.communicate()
    assert (export.returncode, told, into.stderr) == (0, b"", b"")
    assert json.loads(into.stdout) == {"created": 1, "kept": 0}
    assert facts(new.get("a")) == facts(bridge.get("a"))


def test_what_is_left_out_is_told(url: str, bridge: Bridge, store: Store, tmp_path: Path) -> None:
    bridge.make_task("mail.send", [], 0, id="runs")
    assert store.run(calls.claim("t", Settings(), room=1, idle=True)).tasks
    store.run(calls.heartbeat("host:1:aa", 10, []))
    file = tmp_path / "tasks.ndjson"
    result = run("export", file, url=url)
    assert (result.returncode, file.read_bytes()) == (0, b"")
    assert "1 listeners beat" in result.stderr
    assert "1 running tasks are left out" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        "7", "[]", "{}", '{"id": "a b"}',
        '{"id": "a", "func": "../x", "args": "[]", "due": "2031-01-01T00:00:00Z"}',
        '{"id": "a", "func": "m.f", "args": "[1", "due": "2031-01-01T00:00:00Z"}',
        '{"id": "a", "func": "m.f", "args": "[]", "due": "tomorrow"}',
        '{"id": "a", "func": "m.f", "args": "[]", "due": "2031-01-01T00:00:00Z", "retry": "7"}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_task_makes_none(
    bridge: Bridge, url: str, tmp_path: Path, wrong: str
) -> None:
    file = tmp_path / "tasks.ndjson"
    file.write_text(wrong + "\n")
    with pytest.raises(InvalidTask, match="the line at byte 0 is no exported task"):
        invoke("import", str(file), url=url)
    assert bridge.count().pending == 0

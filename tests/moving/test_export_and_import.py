"""Tasks moved from one database to another, by export and import."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, Change, Group, InvalidTask, State, Task, Then
from expirebridge.connection.clients import _PRODUCER_RETRIES
from expirebridge.groups import calls as groups
from expirebridge.moving.ndjson import FIELDS
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, reconciling
from expirebridge.task.new_task import CHUNK_TASKS
from tests.kit.cases import each
from tests.kit.invoked import end_due_tasks, invoke, run
from tests.kit.processes import COMMAND
from tests.kit.proxy import Proxy
from tests.kit.servers import AnyServer
from tests.kit.steps import server_ms

ROOT = Path(__file__).parents[2]
TOLD = {"id", "func", "args", "kwargs", "key", "state", "tags", "attempt", "snoozes", "error"}


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
    hint = reconciling.KeyEvent(
        foreign, "taken", foreign.partition(b":?")[2], reconciling.EventKind.LIVE
    )
    store.run(reconciling.adopt([hint], Settings()))
    bridge.make_task("mail.send", [], 0, id="done")
    end_due_tasks(store, "succeeded", "")
    bridge.make_task("mail.send", [], 0, id="tried")
    end_due_tasks(store, "retry", "once", delay=3600)
    bridge.make_task("mail.send", [], 0, id="snoozed")
    end_due_tasks(store, "snoozed", "not yet", delay=3600)
    file = tmp_path / "tasks.ndjson"
    invoke("export", str(file), url=url)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()].count("paused") == 1
    told = invoke("import", str(file), url=new_url)
    assert told == "created  9\nkept     0\n"
    ids = [task.id for task in bridge.list(state="pending").tasks]
    assert len(ids) == 8
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
    server: AnyServer, url: str, new_url: str, bridge: Bridge, new: Bridge, tmp_path: Path
) -> None:
    bridge.make_tasks([{"func": "mail.send", "args": [n], "delay": 3600} for n in range(450)])
    file = tmp_path / "tasks.ndjson"
    invoke("export", str(file), url=url)
    ids = [json.loads(line)["id"] for line in file.read_text().splitlines()]
    with Proxy(server.port) as proxy:
        by_proxy = proxy.url[:-1] + new_url[-1]
        proxy.cut_reply_of("make", times=_PRODUCER_RETRIES + 1, holding=ids[330].encode())
        result = run("import", file, url=by_proxy)
        assert result.returncode == 1
        assert result.stdout == "created  320\nkept     0\n"
        # Again: what was noted as imported is not even read; what the server made before the
        # connection broke is known.
        assert run("import", file, url=by_proxy).stdout == "created  66\nkept     64\n"
        assert run("import", file, url=by_proxy).stdout == "created  0\nkept     0\n"
        new.run_now(ids[0])
        with redis.Redis.from_url(new_url) as client:
            store = Store(client, prefix="expirebridge")
            assert end_due_tasks(store, "succeeded", "") == [ids[0]]
        # A file that changed is read from its beginning; what is known is left, finished or not.
        os.utime(file, ns=(0, 0))
        assert run("import", file, url=by_proxy).stdout == "created  0\nkept     450\n"
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


def test_what_is_left_out_is_told(
    url: str, bridge: Bridge, store: Store, client: redis.Redis, tmp_path: Path
) -> None:
    bridge.make_task("mail.send", [], 0, id="runs")
    assert store.run(claiming.claim("t", Settings(), places=1, idle=True)).tasks
    # It counts for a lease, and the command may take longer than that to start.
    client.zadd("expirebridge:listeners", {"host:1:aa": server_ms(client) + 3_600_000})
    file = tmp_path / "tasks.ndjson"
    result = run("export", file, url=url)
    assert (result.returncode, file.read_bytes()) == (0, b"")
    assert "1 listener beats" in result.stderr
    assert "1 running task is left out" in result.stderr


GOOD = {"id": "a", "func": "m.f", "args": "[]", "due": "2031-01-01T00:00:00Z"}


def line(left_out: str = "", **values: Any) -> str:
    return json.dumps({name: value for name, value in (GOOD | values).items() if name != left_out})


@each(
    ("wrong", "reason"),
    [
        ('{"id": ', "not JSON: unexpected end of data at character"),
        ("7", "write one JSON object on each line"),
        (line("id"), 'id: it is missing; write text, such as "order-17"'),
        (line(id="a b"), "id='a b': an id has"),
        (line("func"), "func: it is missing"),
        (line(func="../x"), "func='../x': write module.function"),
        (line("args"), "args: it is missing; write JSON as text"),
        (line(args=["secret"]), """args: write JSON as text, such as "[42,\\"hi\\"]"""),
        (line(args="[1"), "args: "),
        (line(args='"secret"'), "args: the arguments are neither an array nor an object"),
        (line("due"), "due: it is missing; write a time with its zone"),
        (line(due=7), "due: write a time with its zone"),
        (line(due="tomorrow"), "due='tomorrow': write a time with its zone"),
        (line(due="2031-01-01T00:00:00"), "due='2031-01-01T00:00:00': write a time with its zone"),
        (line(tags="x"), "tags='x': give a list of tags"),
        (line(tags=["a b"]), "tag 'a b': a tag has"),
        (line(retry=[5]), 'retry: write JSON as text, such as "[15,60]"'),
        (line(retry="7"), "retry: not a retry policy"),
        (line(misfire='["hop"]'), "misfire: not a misfire policy"),
        (line(timeout="15m"), "timeout: write a number"),
        (line(timeout=0), "timeout=0: it must be above 0"),
        (line(ttl=True), "ttl: write a whole number"),
        (line(ttl=0), "ttl: write a whole number of milliseconds, 1 or more"),
        (line(attempt=-1), "attempt: write a whole number"),
        (line(attempt=1.5), "attempt: write a whole number"),
        (line(snoozes="3"), "snoozes: write a whole number"),
        (line(left="1"), "left: write a whole number"),
        (line(error=7), "error: write text"),
        (line(key="a:?m.g?[]"), "key: it must be the name of a key of m.f with these arguments"),
        (line(key="secret"), "key: it must be the name of a key of m.f with these arguments"),
        (line(delay=7), "delay: there is no such field; there are after, args, attempt, due, "),
    ],
)  # fmt: skip
def test_a_line_that_is_no_task_is_named_and_nothing_is_made(
    bridge: Bridge, url: str, tmp_path: Path, wrong: str, reason: str
) -> None:
    file = tmp_path / "tasks.ndjson"
    before = "".join(line(id=f"good-{n}") + "\n" for n in range(CHUNK_TASKS + 1))
    file.write_text(before + "\n" + wrong + "\n" + line(id="good") + "\n")
    with pytest.raises(InvalidTask) as refused:
        invoke("import", str(file), url=url)
    message = str(refused.value)
    assert f"line {CHUNK_TASKS + 3}: {reason}" in message
    assert message.endswith("; nothing was imported")
    assert "secret" not in message
    assert bridge.count().pending == 0


def test_a_bad_line_in_a_pipe_stops_what_follows(url: str, bridge: Bridge) -> None:
    """What came through a pipe cannot be looked at first."""
    lines = [line(id=f"good-{n}") for n in range(CHUNK_TASKS)]
    piped = "\n".join([*lines, line(id="with-it"), line("args"), line(id="after")])
    result = run("import", "-", url=url, answer=piped)
    assert result.returncode == 2
    assert result.stdout == f"created  {CHUNK_TASKS}\nkept     0\n"
    assert f"line {CHUNK_TASKS + 2}: args: it is missing" in result.stderr
    assert "fix it and import all again: tasks that are known are kept" in result.stderr
    assert bridge.count().pending == CHUNK_TASKS


def test_the_lines_that_the_page_shows_are_tasks(url: str, bridge: Bridge, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "task-lines.md").read_text()
    shown, grouped, series = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "tasks.ndjson"
    file.write_text(shown + grouped + series)
    assert invoke("import", str(file), url=url).split() == [
        "created", "7", "kept", "0", "series", "created", "1", "series", "kept", "0",
        "groups", "created", "1", "groups", "kept", "0",
    ]  # fmt: skip
    plain, tried, watched, paused, awaited = (
        bridge.get(json.loads(line)["id"]) for line in shown.splitlines()
    )
    assert plain is not None
    assert (plain.func, plain.args) == ("mail.send", [42, "hi"])
    assert plain.due == datetime(2031, 1, 1, 8, 0, tzinfo=UTC)
    assert tried is not None
    assert (tried.kwargs, tried.attempt, tried.tags) == ({"order": 17}, 1, ("order-17",))
    assert watched is not None
    assert bridge.beat(watched.id) is Change.MOVED
    assert paused is not None
    assert paused.state is State.PAUSED
    assert awaited is not None
    assert bridge.signal(awaited.id) is Change.SIGNALLED
    assert bridge.cancel_all(["import-7@g1", "import-7@g2"]) == {Change.CANCELLED: 2}
    [group] = bridge.list_groups().groups
    assert (group.state, group.total, group.succeeded) == ("ended", 3, 1)
    follow_up = bridge.get("import-7@then")
    assert follow_up is not None
    assert follow_up.state is State.PENDING
    weekly = bridge.get_series(json.loads(series)["series"])
    assert weekly is not None
    assert str(weekly.schedule) == "0 9 * * 1 Asia/Tokyo"


def test_a_file_that_is_not_there_is_said_so(url: str, tmp_path: Path) -> None:
    result = run("import", tmp_path / "none.ndjson", url=url)
    assert result.returncode == 2
    assert f"{tmp_path / 'none.ndjson'}: it cannot be read: No such file" in result.stderr


def test_the_page_names_every_field_of_a_line() -> None:
    page = (ROOT / "docs" / "reference" / "task-lines.md").read_text()
    assert sorted(re.findall(r"^- `(\w+)`: ", page, re.MULTILINE)) == sorted(FIELDS)


def test_series_are_moved_with_their_waiting_ticks(
    url: str, new_url: str, bridge: Bridge, new: Bridge, tmp_path: Path
) -> None:
    nightly = bridge.schedule(
        "nightly", "db.tidy", ["x" * 600], cron="30 2 * * *", tz="Asia/Tokyo", tags=["db"],
        retry=[5], timeout=1.5, jitter="10m", overlap="allow", late_after="1h", misfire="skip",
    )  # fmt: skip
    hourly = bridge.schedule("hourly", "db.tidy", every="1h")
    bridge.schedule("paused", "db.tidy", every="1h")
    bridge.pause_series("paused")
    file = tmp_path / "tasks.ndjson"
    assert run("export", str(file), url=url).returncode == 0
    for created, kept, new_series, kept_series in ((2, 0, 3, 0), (0, 2, 0, 3)):
        Path(f"{file}.imported").unlink(missing_ok=True)
        told = run("import", str(file), url=new_url).stdout.split()
        assert told == [
            "created", str(created), "kept", str(kept),
            "series", "created", str(new_series), "series", "kept", str(kept_series),
        ]  # fmt: skip
    for before in (nightly, hourly):
        after = new.get_series(before.id)
        assert after is not None
        assert (after.schedule, after.next, after.due, after.args, after.tags, after.created) == (
            before.schedule, before.next, before.due, before.args, before.tags, before.created
        )  # fmt: skip
        assert facts(new.get(f"{before.id}@{round(1000 * moment(after.next))}")) == facts(
            bridge.get(f"{before.id}@{round(1000 * moment(before.next))}")
        )
    paused = new.get_series("paused")
    assert paused is not None
    assert paused.paused is not None
    assert new.count().pending == 2


# Groups


def moved(url: str, new_url: str, file: Path, counts: str) -> None:
    assert run("export", str(file), url=url).stderr == ""
    told = run("import", str(file), url=new_url)
    assert (told.stdout.split(), told.stderr) == (counts.split(), "")


def end_members(store: Store, *ids: str) -> None:
    assert set(end_due_tasks(store, "succeeded", "")) == set(ids)


def group_at(bridge: Bridge) -> Group:
    group = bridge.get_group("g")
    assert group is not None
    return group


@pytest.fixture
def new_store(new_url: str) -> Iterator[Store]:
    with redis.Redis.from_url(new_url) as client:
        yield Store(client, prefix="expirebridge")


@pytest.mark.parametrize("close", [True, False])
def test_a_group_that_is_half_done_ends_where_it_is_imported(
    url: str, new_url: str, bridge: Bridge, new: Bridge, store: Store, new_store: Store,
    tmp_path: Path, close: bool,
) -> None:  # fmt: skip
    members = [{"func": "mail.send", "args": [n], "delay": n and 3600} for n in range(70)]
    then = Then("mail.report", ["x" * 600], "2h", tags=["t"])
    bridge.make_group("g", members, then=then, close=close)
    end_members(store, "g@g0")
    bridge.pause("g@g1")
    before = group_at(bridge)
    moved(url, new_url, tmp_path / "tasks", "created 69 kept 0 groups created 1 groups kept 0")
    assert group_at(new) == before
    assert (before.total, before.left, before.succeeded, before.closed) == (70, 69, 1, close)
    assert facts(new.get("g@then")) == facts(bridge.get("g@then"))
    (tmp_path / "tasks.imported").unlink()
    moved(url, new_url, tmp_path / "tasks", "created 0 kept 69 groups created 0 groups kept 1")
    assert group_at(new) == before
    # Its producer repeats its call.
    assert new.make_group("g", members, then=then).total == 70
    assert new.get("g@g0") is None
    for number in range(1, 70):
        new.run_now(f"g@g{number}")
    end_members(new_store, *(f"g@g{number}" for number in range(1, 70)))
    after = group_at(new)
    assert (after.state, after.total, after.succeeded) == ("ended", 70, 70)
    follow_up = new.get("g@then")
    assert follow_up is not None
    assert (follow_up.state, follow_up.args, follow_up.tags) == ("pending", ["x" * 600], ("t",))
    assert after.ended is not None
    assert moment(follow_up.due) - moment(after.ended) == 7200
    new.run_now("g@then")
    end_members(new_store, "g@then")
    assert end_due_tasks(new_store, "succeeded", "") == []


def test_a_group_that_has_ended_keeps_its_name_and_its_end(
    url: str, new_url: str, bridge: Bridge, new: Bridge, store: Store, tmp_path: Path
) -> None:
    bridge.make_group("g", [{"func": "m.f", "delay": 0}], then=Then("m.g", delay="1h"))
    end_members(store, "g@g0")
    bridge.run_now("g@g0")  # once more, which the group does not wait for
    moved(url, new_url, tmp_path / "tasks", "created 2 kept 0 groups created 1 groups kept 0")
    assert group_at(new) == group_at(bridge)
    waits = new.get("g@then")
    assert waits is not None
    assert waits.state is State.PENDING
    with redis.Redis.from_url(url) as one, redis.Redis.from_url(new_url) as other:
        ends = [client.zscore("expirebridge:groups", "g") for client in (one, other)]
    assert ends[0] == ends[1]


def test_members_that_stayed_behind_are_made_again_or_given_up(
    url: str, new_url: str, bridge: Bridge, new: Bridge, store: Store, tmp_path: Path
) -> None:
    """One that runs, and one that has failed, are not in the file: the group waits for them."""
    bridge.make_group("g", [{"func": "m.f", "delay": n and 60} for n in range(3)])
    end_due_tasks(store, "failed", "no")
    bridge.run_now("g@g1")
    assert store.run(claiming.claim("t", Settings(), places=1, idle=True)).tasks
    file = tmp_path / "tasks"
    assert "1 running task is left out" in run("export", str(file), url=url).stderr
    run("import", str(file), url=new_url)
    assert (group_at(new).left, group_at(new).failed) == (3, 1)
    assert group_at(new).failed_at is not None
    assert group_at(new).failed_at == group_at(bridge).failed_at
    for number in (0, 1):
        new.make_task("m.f", delay=60, id=f"g@g{number}", if_exists="keep")
    assert (group_at(new).left, group_at(new).failed, group_at(new).total) == (3, 0, 3)
    assert new.cancel_all([f"g@g{number}" for number in range(3)]) == {Change.CANCELLED: 3}
    assert group_at(new).state == "ended"
    run("import", str(file), url=new_url[:-1] + "4")
    with Bridge(new_url[:-1] + "4") as third:
        cancelled = third.cancel_group("g")
        assert (cancelled.left, cancelled.cancelled, cancelled.failed) == (0, 3, 0)
        assert cancelled.ended is not None


def test_a_group_that_is_being_cancelled_is_left_out(
    url: str, new_url: str, bridge: Bridge, new: Bridge, store: Store, tmp_path: Path
) -> None:
    bridge.make_group("g", [{"func": "m.f", "delay": 60}] * 250, then=Then("m.g"))
    store.run(groups.cancel_group("g", keep=60))  # a hundred; then its caller died
    bridge.make_task("m.f", delay=60, id="another")
    file = tmp_path / "tasks"
    assert (
        "group 'g', which is being cancelled, is left out"
        in run("export", str(file), url=url).stderr
    )
    assert run("import", str(file), url=new_url).stdout.split() == ["created", "1", "kept", "0"]
    assert new.list_groups().groups == []


def test_a_member_of_no_group_is_refused_and_the_rest_is_made(
    new_url: str, new: Bridge, tmp_path: Path
) -> None:
    new.make_group("closed")
    new.make_task("m.f", delay=60, id="taken@then")
    taken = json.loads(GROUP) | {"group": "taken", "then": json.loads(FOLLOW_UP)}
    taken["then"]["id"] = "taken@then"
    file = tmp_path / "tasks"
    ids = ("a", "closed@g7", "none@g0", "none@g1", "b")
    file.write_text("\n".join([json.dumps(taken), *(line(id=id) for id in ids)]))
    result = run("import", str(file), url=new_url)
    assert (result.returncode, result.stdout.split()) == (2, ["created", "2", "kept", "0"])
    assert result.stderr.splitlines() == [
        "expirebridge: 1 refused: an unfinished task has the id of the group's follow-up",
        "expirebridge: 1 refused: its id is that of a member of a group which takes no more",
        "expirebridge: 2 refused: its id is that of a member of a group which is not there",
    ]


GROUP = (
    '{"group": "g", "made": 5, "definition": "x", "on_failed": "wait", "next": 0, "left": 0, '
    '"succeeded": 0, "failed": 0, "cancelled": 0, "members": ""}'
)
FOLLOW_UP = '{"id": "g@then", "func": "m.f", "args": "[]", "left": 0}'


@each(
    ("changed", "named"),
    [
        ({"group": "a b"}, "group='a b': a group's name has"),
        ({"on_failed": "stop"}, "on_failed='stop': one of wait, run, cancel"),
        ({"left": None}, "left: write a whole number, 0 or more"),
        ({"stopped": -1}, "stopped: write a whole number, 0 or more"),
        ({"members": "?"}, "members: write base64"),
        ({"members": "AAAA" * 9000}, "members: write base64, of two bits for each of 100,000"),
        ({"then": "h@then"}, "then: write 'g@then', or the line of that task"),
        ({"then": {"id": "g@then"}}, "then: func: it is missing"),
        ({"then": json.loads(FOLLOW_UP) | {"id": "x"}}, "then: a follow-up has the id 'g@then'"),
        ({"then": GOOD | {"id": "g@then"}}, "then: a follow-up has the id 'g@then', and `left`"),
        ({"tags": []}, "tags: there is no such field; there are cancelled, cancelled_to, "),
    ],
)
def test_a_bad_group_is_refused_before_anything_is_imported(
    new_url: str, new: Bridge, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_text(GROUP + "\n" + json.dumps(json.loads(GROUP) | changed) + "\n")
    result = run("import", str(file), url=new_url)
    assert (result.returncode, new.list_groups().groups) == (2, [])
    assert result.stderr.startswith("expirebridge: line 2: ")
    assert named in result.stderr


def moment(when: datetime | None) -> float:
    assert when is not None
    return when.timestamp()


@each(
    ("changed", "named"),
    [
        ({"schedule": {"every": 5}}, "at least a second"),
        ({"schedule": "1h"}, "schedule: write an object"),
        ({"series": "a b"}, "id='a b'"),
        ({"paused": 1}, "paused: write true or false"),
        ({"due": "now"}, "due: there is no such field"),
        ({"retry": "x"}, "retry: "),
        ({"made": -1}, "made: write a whole number"),
    ],
)
def test_a_bad_series_is_refused_before_anything_is_imported(
    new_url: str, new: Bridge, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    good = {"series": "s", "func": "db.tidy", "args": "[]", "schedule": {"every": 3_600_000}}
    file = tmp_path / "bad.ndjson"
    file.write_text(json.dumps(good) + "\n" + json.dumps(good | {"series": "t"} | changed) + "\n")
    result = run("import", str(file), url=new_url)
    assert (result.returncode, new.list_series().series) == (2, [])
    assert result.stderr.startswith("expirebridge: line 2: ")
    assert named in result.stderr

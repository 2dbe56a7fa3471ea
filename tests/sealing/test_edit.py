"""Other arguments for a task that waits, or has failed: in each state, and wherever they are."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Change, InvalidTask, State, Task
from expirebridge.bridge import Operations
from expirebridge.hooks import Hooks
from expirebridge.limits.calls import declare_limits
from expirebridge.moving import calls as migration
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, editing, fleet, looking, producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.fleet import digest_of
from expirebridge.task.calls.reconciling import EventKind
from expirebridge.task.keys import MAX_ARGS, MAX_ARGS_IN_KEY
from tests.kit.colours import Ask, asking_one
from tests.kit.invoked import invoke
from tests.kit.snapshot import check_invariant, read
from tests.kit.states import HOUR, KEY, bring, hear
from tests.kit.steps import PREFIX, claim, new, server_ms, settle
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

NEW = b"a:?mail.send?[2]"
LARGE = ["x" * MAX_ARGS_IN_KEY]
RECORD = f"{PREFIX}:task:a"
OPERATIONS = Operations(Settings(), Hooks())


@pytest.fixture(params=[Bridge, AsyncBridge])
async def ask(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Ask]:
    async with asking_one(request.param(url, unknown="off")) as ask:
        yield ask


def edit(store: Store, args: list[Any], id: str = "a") -> Change:
    return store.run(OPERATIONS.edit(id, args))


def get(store: Store, id: str = "a") -> Task:
    task = store.run(looking.get(id))
    assert task is not None
    return task


# Redis 6.2 tells only what is left.
END_OF = """
if redis.REDIS_VERSION_NUM then return redis.call('PEXPIRETIME', KEYS[1]) end
local left, time = redis.call('PTTL', KEYS[1]), redis.call('TIME')
return left < 0 and left or tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + left
"""


def end_of(client: redis.Redis, key: bytes) -> int:
    """The ms at which a key expires; -1 without a TTL, -2 if there is none."""
    end: Any = client.eval(END_OF, 1, key.decode())
    return int(end)


def is_same(one: int, other: int) -> bool:
    """True if two ends are the same: Redis 6.2 may be a millisecond wrong about one."""
    return abs(one - other) <= 1


def beat(store: Store, shapes: dict[str, str], name: str = "me") -> None:
    """Beat as a listener with these signatures."""
    code = digest_of(shapes)
    store.run(claiming.heartbeat(name, 10, [], code=code, functions=len(shapes)))
    store.run(fleet.declare(code, shapes))


# Each state.


@pytest.mark.parametrize("state", ["pending", "paused", "failed"])
def test_the_arguments_change_and_nothing_else(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    before, end = get(store), end_of(client, KEY)
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    after = get(store)
    assert (after.args, after.kwargs, after.key) == ([2], {}, NEW)
    for name in ("state", "attempt", "tags", "error", "created", "started", "ended"):
        assert getattr(after, name) == getattr(before, name), name
    assert abs((after.due - before.due).total_seconds()) < 1
    assert client.exists(KEY) == 0
    assert is_same(end_of(client, NEW), end)
    check_invariant(read(client), set())


def test_a_failed_task_runs_with_the_new_arguments_when_it_is_retried(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "failed")
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    assert claim(store).tasks == []
    store.run(producing.run_now("a"))
    assert [task.args for task in claim(store).tasks] == [b"[2]"]


@pytest.mark.parametrize("state", ["running", "succeeded", "cancelled"])
def test_of_others_nothing_is_changed(store: Store, client: redis.Redis, state: str) -> None:
    bring(store, client, state)
    before = client.hgetall(RECORD)
    beat(store, {"mail.send": "(to)"})
    answer = Change.RUNNING if state == "running" else Change.FINISHED
    assert edit(store, [1, 2, 3]) is answer
    assert client.hgetall(RECORD) == before


async def test_both_colours(ask: Ask, store: Store) -> None:
    assert await ask("edit", "a", [2]) is Change.NOT_FOUND
    await ask("make_task", "mail.send", [1, 2], 60, id="a", kwargs={"cc": 3})
    assert await ask("edit", "a", [2]) is Change.EDITED_UNCHECKED
    assert ((await ask("get", "a")).args, (await ask("get", "a")).kwargs) == ([2], {"cc": 3})
    assert await ask("edit", "a", kwargs={"bcc": 4}) is Change.EDITED_UNCHECKED
    assert ((await ask("get", "a")).args, (await ask("get", "a")).kwargs) == ([2], {"bcc": 4})
    await ask("edit", "a", [], {})
    assert (await ask("get", "a")).key == b"a:?mail.send?[]"
    beat(store, {"mail.send": "(to)"})
    assert await ask("edit", "a", [2]) is Change.EDITED


async def test_its_history_tells_it(ask: Ask) -> None:
    made = await ask("make_task", "mail.send", [1], 60, id="a")
    await ask("edit", "a", [2])
    task = await ask("get", "a")
    assert [(one.what, one.old_due, one.new_due) for one in task.history] == [
        ("created", None, None), ("edit_args", None, None)
    ]  # fmt: skip
    assert task.due == made.due
    reason = await ask("why", "a")
    assert (reason.code, reason.since) == ("scheduled", task.created)


# Its key.


def test_the_end_of_its_timer_stays_to_the_millisecond_and_so_does_its_value(
    store: Store, client: redis.Redis
) -> None:
    at = server_ms(client) + HOUR + 123
    client.set(KEY, "a value", px=HOUR)
    client.pexpireat(KEY, at)
    hear(store, EventKind.LIVE)
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    assert client.get(NEW) == b"a value"
    assert is_same(end_of(client, NEW), at)
    assert client.zscore(f"{PREFIX}:pending", "a") == pytest.approx(at, abs=2)


@pytest.mark.parametrize("state", ["pending", "paused", "failed"])
def test_large_arguments_go_into_the_record_and_stay_there(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    end = end_of(client, KEY)
    for args in (LARGE, ["y", *LARGE], [2]):
        assert edit(store, args) is Change.EDITED_UNCHECKED
        assert (get(store).args, get(store).key) == (args, b"a:?mail.send?@")
        assert is_same(end_of(client, b"a:?mail.send?@"), end)
    assert client.hget(RECORD, "args") == b"[2]"
    check_invariant(read(client), set())
    store.run(producing.run_now("a"))
    assert [task.args for task in claim(store, "u").tasks] == [b"[2]"]


EDITS: dict[str, Callable[[redis.Redis], object]] = {
    "later": lambda client: client.pexpire(KEY, 3 * HOUR),
    "sooner": lambda client: client.pexpire(KEY, HOUR // 2),
    "no TTL": lambda client: client.persist(KEY),
    "deleted": lambda client: client.delete(KEY),
}


@pytest.mark.parametrize("state", ["pending", "paused"])
@pytest.mark.parametrize("change", EDITS)
def test_what_a_client_did_to_the_old_key_before_counts(
    store: Store, client: redis.Redis, state: str, change: str
) -> None:
    """Nobody has noticed it yet, and its event names a key that no task has any longer."""
    bring(store, client, state)
    assert client.exists(KEY) == 1
    EDITS[change](client)
    end = end_of(client, KEY)
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    hear(store, EventKind.DELETED if change == "deleted" else EventKind.LIVE)
    task = get(store)
    assert (task.args, task.key, client.exists(KEY)) == ([2], NEW, 0)
    if change == "deleted":
        assert task.state == state
        return
    assert task.state is (State.PAUSED if change == "no TTL" else State.PENDING)
    assert is_same(end_of(client, NEW), end)
    if end > 0:
        assert client.zscore(f"{PREFIX}:pending", "a") == pytest.approx(end, abs=5)
    check_invariant(read(client), set())


def test_a_client_that_knows_the_old_key_alone_finds_nothing(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "pending")
    edit(store, [2])
    assert client.expire(KEY, 7200) == 0
    assert client.pttl(KEY) == -2
    assert client.expire(NEW, 7200) == 1


def test_events_of_the_old_key_that_come_late_are_of_no_task(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "pending")
    edit(store, [2])
    before = client.hgetall(RECORD)
    for heard in EventKind:
        hear(store, heard)
    assert client.hgetall(RECORD) == before
    assert store.run(looking.count(10)).unfinished == 1


def test_a_task_with_the_name_of_another_gets_one_of_its_own(
    store: Store, client: redis.Redis
) -> None:
    """A foreign client's key, whose id another task has: it is kept under another id."""
    store.run(producing.make([new("a", HOUR, call=b"other.func?[]")]))
    client.set(KEY, "", px=HOUR)
    hear(store, EventKind.LIVE)
    page = store.run(looking.list_page(state=State.PENDING, cursor="0"))
    [foreign] = {task.id for task in page.tasks} - {"a"}
    assert get(store, foreign).key == KEY
    end = end_of(client, KEY)
    assert edit(store, [2], foreign) is Change.EDITED_UNCHECKED
    key = get(store, foreign).key
    assert key == f"{foreign}:?mail.send?[2]".encode()
    assert is_same(end_of(client, key), end)
    assert client.exists(KEY) == 0
    check_invariant(read(client), set())


@pytest.mark.parametrize("state", ["pending", "paused"])
def test_a_foreign_task_that_has_the_new_key_makes_way(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    client.set(NEW, "", px=2 * HOUR)
    store.run(
        reconciling.adopt(
            [reconciling.KeyEvent(NEW, "a", b"mail.send?[2]", EventKind.LIVE)], Settings()
        )
    )
    assert store.run(looking.count(10)).unfinished == 2
    end = end_of(client, KEY)
    edit(store, [2])
    assert store.run(looking.count(10)).unfinished == 1
    assert is_same(end_of(client, NEW), end)
    check_invariant(read(client), set())


@pytest.mark.parametrize("state", ["paused", "failed"])
def test_a_key_that_a_client_set_under_the_new_name_is_not_its_timer(
    store: Store, client: redis.Redis, state: str
) -> None:
    bring(store, client, state)
    client.delete(KEY)
    client.set(NEW, "", px=HOUR)
    edit(store, [2])
    assert client.exists(KEY, NEW) == 0
    assert get(store).state == state


def test_a_due_task_has_no_key_afterwards_too(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a")]))
    client.set(NEW, "", px=HOUR)  # nobody has seen it
    edit(store, [2])
    assert client.exists(KEY, NEW) == 0
    assert [task.args for task in claim(store).tasks] == [b"[2]"]


# Signatures.


def test_arguments_that_do_not_fit_are_refused(store: Store, client: redis.Redis) -> None:
    bring(store, client, "pending")
    before = client.hgetall(RECORD)
    beat(store, {"mail.send": "(to, /, subject=...)"})
    with pytest.raises(InvalidTask, match=r"mail.send\(to, /, subject=...\): too many positional"):
        edit(store, [1, 2, 3])
    with pytest.raises(InvalidTask, match="missing a required"):
        store.run(OPERATIONS.edit("a", [], {"subject": "hi"}))
    assert client.hgetall(RECORD) == before
    assert store.run(OPERATIONS.edit("a", kwargs={"subject": "hi"})) is Change.EDITED


def test_of_several_codes_one_must_fit(store: Store, client: redis.Redis) -> None:
    bring(store, client, "pending")
    beat(store, {"mail.send": "(to)"}, "old")
    beat(store, {"mail.send": "(to, subject)"}, "new")
    assert edit(store, [1, 2]) is Change.EDITED
    assert edit(store, [3]) is Change.EDITED
    with pytest.raises(InvalidTask, match=r"mail.send\(to\): .*; mail.send\(to, subject\): "):
        edit(store, [1, 2, 3])


@pytest.mark.parametrize("shapes", [{"mail.read": "()"}, {"mail.send": "(?)"}])
def test_what_no_listener_declares_is_not_checked(
    store: Store, client: redis.Redis, shapes: dict[str, str]
) -> None:
    bring(store, client, "pending")
    beat(store, shapes)
    assert edit(store, [1, 2, 3]) is Change.EDITED_UNCHECKED


def test_a_listener_that_is_gone_does_not_count(store: Store, client: redis.Redis) -> None:
    bring(store, client, "pending")
    beat(store, {"mail.send": "()"})
    store.run(claiming.leave("me"))
    assert edit(store, [2]) is Change.EDITED_UNCHECKED


def test_a_declaration_that_another_client_wrote_is_not_believed(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "pending")
    shapes = {"mail.send": "no shape"}
    beat(store, shapes)
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    client.hset(f"{PREFIX}:code:{digest_of(shapes)}", "mail.send", "()")
    assert edit(store, [3]) is Change.EDITED_UNCHECKED


def test_listeners_that_refused_the_former_arguments_are_asked_again(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "pending")
    client.hset(RECORD, "unfit", "aa bb")
    edit(store, [2])
    assert client.hexists(RECORD, "unfit") == 0


# What cannot be.


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        (None, None, "give args, kwargs, or both"),
        ("no list", None, "args='no list': give a list"),
        ([1], [2], "kwargs="),
        ([{1}], None, r"args\[0\]"),
        ([], {"*": 1}, r"the name '\*' is taken"),
        (["x" * MAX_ARGS], None, "at most 65,536"),
    ],
)
async def test_bad_arguments_are_refused(ask: Ask, args: Any, kwargs: Any, reason: str) -> None:
    await ask("make_task", "mail.send", [1], 60, id="a")
    with pytest.raises(InvalidTask, match=reason):
        await ask("edit", "a", args, kwargs)
    with pytest.raises(InvalidTask, match="id="):
        await ask("edit", "no id", [1])
    with pytest.raises(InvalidTask, match="expected is of type str: give the Task"):
        await ask("edit", "a", [1], expected="x")


def test_arguments_that_cannot_be_read_are_replaced_only_whole(
    store: Store, client: redis.Redis
) -> None:
    client.set("a:?mail.send?@", "", px=HOUR)
    key = reconciling.KeyEvent(b"a:?mail.send?@", "a", b"mail.send?@", EventKind.LIVE)
    store.run(reconciling.adopt([key], Settings()))
    with pytest.raises(InvalidTask, match=r"cannot be read.*give args and kwargs"):
        edit(store, [2])
    assert store.run(OPERATIONS.edit("a", [2], {})) is Change.EDITED_UNCHECKED
    assert (get(store).args, get(store).key) == ([2], b"a:?mail.send?@")


def test_a_key_that_cannot_be_a_task_is_refused(store: Store, client: redis.Redis) -> None:
    name = b"a:?no function?[1]"
    client.set(name, "", px=HOUR)
    key = reconciling.KeyEvent(name, "a", b"no function?[1]", EventKind.LIVE, "no function")
    store.run(reconciling.adopt([key], Settings()))
    assert get(store).state is State.FAILED
    with pytest.raises(InvalidTask, match="func='no function'"):
        edit(store, [2])


def test_a_task_of_a_ledger_is_refused_with_the_way(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", HOUR, fields={"ledger": "0 0"})]))
    client.hset(f"{PREFIX}:meta", "features", "ledger")
    with pytest.raises(InvalidTask, match=r"of a ledger.*ledger\.make_task\(session, 'mail\.send'"):
        edit(store, [2])
    assert get(store).args == [1]


def test_one_that_became_a_ledger_s_after_it_was_read_is_not_changed(
    store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    read_before = store.run(editing.read_task("a"))
    client.hset(RECORD, "ledger", "0 0")
    client.hset(f"{PREFIX}:meta", "features", "ledger")
    assert store.run(editing.edit("a", read_before, b"[2]")) is None
    assert get(store).args == [1]


# Others, at the same time.


async def test_it_must_be_as_expected_if_that_is_asked(ask: Ask) -> None:
    await ask("make_task", "mail.send", [1], 60, id="a")
    seen = await ask("get", "a")
    await ask("edit", "a", [2])
    assert await ask("edit", "a", [3], expected=seen) is Change.UNCHANGED
    assert await ask("edit", "a", [3], expected=await ask("get", "a")) is Change.EDITED_UNCHECKED
    assert (await ask("get", "a")).args == [3]
    await ask("make_task", "mail.read", [1], 60, id="a", if_exists="replace")
    assert await ask("edit", "a", [3], expected=seen) is Change.UNCHANGED


@pytest.mark.parametrize("call", [b"mail.read?[1]", b"mail.send?[7]", b"mail.send?@"])
def test_what_changed_since_it_was_read_is_read_again(
    store: Store, client: redis.Redis, call: bytes
) -> None:
    store.run(producing.make([new("a", HOUR)]))
    seen = store.run(editing.read_task("a"))
    fields = {"args": b"[7]"} if call.endswith(b"@") else {}
    store.run(producing.make([new("a", HOUR, call=call, if_exists="replace", fields=fields)]))
    before = client.hgetall(RECORD)
    assert store.run(editing.edit("a", seen, b"[2]")) is None
    assert client.hgetall(RECORD) == before
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    assert get(store).args == [2]


def test_other_arguments_in_the_record_are_another_call(store: Store, client: redis.Redis) -> None:
    one, other = (
        new("a", HOUR, call=b"f.g?@", if_exists="replace", fields={"args": args})
        for args in (b"[7]", b"[8]")
    )
    store.run(producing.make([one]))
    seen = store.run(editing.read_task("a"))
    store.run(producing.make([other]))
    assert store.run(editing.edit("a", seen, b"[2]")) is None
    assert client.hget(RECORD, "args") == b"[8]"


def test_arguments_in_the_record_do_not_count_if_its_call_has_some(
    store: Store, client: redis.Redis
) -> None:
    """Another client wrote the field."""
    store.run(producing.make([new("a", HOUR)]))
    client.hset(RECORD, "args", "stale")
    assert get(store).args == [1]
    seen = store.run(editing.read_task("a"))
    assert store.run(editing.edit("a", seen, b"[2]")) is Change.EDITED
    assert (get(store).args, get(store).key, client.hget(RECORD, "args")) == ([2], NEW, None)


def test_what_was_not_read_is_not_changed(store: Store, client: redis.Redis) -> None:
    store.run(producing.make([new("a", HOUR)]))
    client.hset(RECORD, "call", "")
    assert store.run(editing.edit("a", None, b"[2]")) is None
    assert client.hget(RECORD, "call") == b""


def test_a_resend_gets_the_first_answer_and_changes_nothing(
    store: Store, client: redis.Redis
) -> None:
    bring(store, client, "failed")
    call = editing.edit("a", store.run(editing.read_task("a")), b"[2]")
    assert store.run(call) is Change.EDITED
    assert edit(store, [3]) is Change.EDITED_UNCHECKED
    store.run(producing.run_now("a"))
    claim(store, "u")
    before = client.hgetall(RECORD)
    assert store.run(call) is Change.EDITED
    assert client.hgetall(RECORD) == before


def test_while_the_database_is_moved_it_may_be_elsewhere(store: Store, client: redis.Redis) -> None:
    bring(store, client, "pending")
    store.run(migration.begin_move("there"))
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    assert edit(store, [2], "b") is Change.ELSEWHERE


# Lanes.

PER_TO = [("f mail.send", b'[["m",0,"to",null]]'), ("l m", b'{"most":1}')]
ORDERED = [("f mail.send", b'[["o",0,"to",null]]'), ("l o", b'{"most":1,"ordered":true}')]
BLOCKING = [
    ("f mail.send", b'[["o",0,"to",null]]'),
    ("l o", b'{"most":1,"ordered":true,"blocks":true}'),
]
FAIR = [("f mail.send", b'[["m",-1,null,null,0,"to",null]]'), ("l m", b'{"most":1,"fair":true}')]


def make_due(store: Store, *ids: str, to: int = 1) -> None:
    """Make tasks that are due, each a millisecond before the next."""
    for place, id in enumerate(ids):
        call = f"mail.send?[{to}]".encode()
        store.run(producing.make([new(id, place - 1000, call=call)]))


def taken(store: Store, token: str = "u") -> list[str]:
    return [task.id for task in claim(store, token).tasks]


def lane(client: redis.Redis, name: str) -> set[bytes]:
    members: Any = client.smembers(f"{PREFIX}:lane:{name}")
    return set(members)


def test_a_waiting_task_leaves_its_lane_for_that_of_its_new_arguments(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "x", "a")
    due = get(store).due
    assert taken(store) == ["x"]
    assert get(store).state is State.WAITING
    assert edit(store, [2]) is Change.EDITED_UNCHECKED
    assert (get(store).state, get(store).due, client.exists(KEY, NEW)) == (State.PENDING, due, 0)
    assert client.zcard(f"{PREFIX}:queue:m=1") == 0
    assert taken(store, "v") == ["a"]
    assert lane(client, "m=2") == {b"a"}


def test_nobody_was_late_while_it_waited_in_the_former_lane(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "z", to=2)
    make_due(store, "x", "a")
    assert sorted(taken(store)) == ["x", "z"]
    client.hincrby(RECORD, "parked", -30_000)
    edit(store, [2])
    assert taken(store, "v") == []
    client.hincrby(RECORD, "parked", -20_000)
    settle(store, Settlement("z", "u", "succeeded"))
    [task] = claim(store, "v").tasks
    assert (task.id, 50 <= task.waited < 51) == ("a", True)


def test_in_the_same_lane_it_keeps_its_place(store: Store, client: redis.Redis) -> None:
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "x", "a", "b")
    assert taken(store) == ["x"]
    before = client.hgetall(RECORD)
    assert edit(store, [1, "hi"]) is Change.EDITED_UNCHECKED
    after = client.hgetall(RECORD)
    assert (after[b"state"], after[b"parked"]) == (b"waiting", before[b"parked"])
    assert client.zrange(f"{PREFIX}:queue:m=1", 0, -1) == [b"a", b"b"]
    settle(store, Settlement("x", "u", "succeeded"))
    assert [task.args for task in claim(store, "v").tasks] == [b'[1,"hi"]']


def test_a_client_that_set_the_key_of_a_waiting_task_put_it_off(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "x", "a")
    assert taken(store) == ["x"]
    client.set(KEY, "", px=HOUR)
    end = end_of(client, KEY)
    edit(store, [2])
    assert get(store).state is State.PENDING
    assert is_same(end_of(client, NEW), end)
    assert client.zcard(f"{PREFIX}:queue:m=1") == 0


def test_one_that_was_granted_a_slot_gives_it_to_the_next(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "x", "a", "b")
    due = get(store).due
    assert taken(store) == ["x"]
    settle(store, Settlement("x", "u", "succeeded"))
    assert lane(client, "m=1") == {b"a"}
    # As that of a rate, whose start is a little ahead.
    client.zadd(f"{PREFIX}:pending", {"a": server_ms(client) + 50})
    edit(store, [2])
    assert lane(client, "m=1") == {b"b"}
    assert (get(store).state, get(store).due) == (State.PENDING, due)
    assert client.zscore(f"{PREFIX}:grants", "a") is None
    assert sorted(taken(store, "v")) == ["a", "b"]
    assert lane(client, "m=2") == {b"a"}


@pytest.mark.parametrize(("args", "rest"), [([1, "hi"], {b"a"}), ([2], {b"b"})])
@pytest.mark.parametrize("paused", [False, True])
def test_between_its_attempts_it_keeps_its_place_in_an_ordered_lane_unless_that_is_another(
    store: Store, client: redis.Redis, args: list[Any], rest: set[bytes], paused: bool
) -> None:
    store.run(declare_limits("aa", ORDERED))
    make_due(store, "a", "b")
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "u", "retry", 3600))
    if paused:
        store.run(producing.pause(["a"]))
    assert lane(client, "o=1") == {b"a"}
    edit(store, args)
    assert lane(client, "o=1") == rest
    assert client.hget(RECORD, "slots") == (b"o=1" if rest == {b"a"} else None)
    check_invariant(read(client), set())


def test_of_two_lanes_it_keeps_the_one_that_stays(store: Store, client: redis.Redis) -> None:
    both = [
        ("f mail.send", b'[["o",0,"to",null],["p",1,"by",null]]'),
        ("l o", b'{"most":1,"ordered":true}'), ("l p", b'{"most":1,"ordered":true}'),
    ]  # fmt: skip
    store.run(declare_limits("aa", both))
    store.run(producing.make([new("a", call=b"mail.send?[1,7]")]))
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "u", "retry", 3600))
    assert client.hget(RECORD, "slots") == b"o=1\np=7"
    edit(store, [1, 8])
    assert client.hget(RECORD, "slots") == b"o=1"
    assert (lane(client, "o=1"), lane(client, "p=7")) == ({b"a"}, set())


@pytest.mark.parametrize(("args", "rest"), [([1, "hi"], {b"a"}), ([2], {b"b"})])
def test_a_failed_one_blocks_its_lane_unless_that_is_another(
    store: Store, client: redis.Redis, args: list[Any], rest: set[bytes]
) -> None:
    store.run(declare_limits("aa", BLOCKING))
    make_due(store, "a", "b")
    assert taken(store) == ["a"]
    settle(store, Settlement("a", "u", "failed"))
    assert lane(client, "o=1") == {b"a"}
    edit(store, args)
    assert lane(client, "o=1") == rest
    assert get(store).state is State.FAILED


def test_another_tenant_has_another_place_in_a_fair_lane(store: Store, client: redis.Redis) -> None:
    store.run(declare_limits("aa", FAIR))
    make_due(store, "x", "a", "b")
    assert taken(store) == ["x"]
    assert client.hget(RECORD, "tenant") == b"1"
    edit(store, [2])
    assert get(store).state is State.PENDING
    assert taken(store, "v") == []
    assert client.hget(RECORD, "tenant") == b"2"
    assert client.zrange(f"{PREFIX}:queue:m\t2", 0, -1) == [b"a"]
    assert client.zrange(f"{PREFIX}:queue:m\t1", 0, -1) == [b"b"]


def test_an_edit_forgets_neither_how_long_it_waited_nor_how_long_it_was_on_hold(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    def check_waited(*seconds: int) -> None:
        stored = client.hget(RECORD, "waited")
        assert isinstance(stored, bytes)
        assert [int(ms) // 1000 for ms in stored.split()] == list(seconds)

    bridge.hold(func="mail.send")
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "x", "a")
    for to, more, seconds in ((2, 30, 30), (1, 10, 40)):
        assert taken(store) == []
        client.hincrby(RECORD, "parked", more * -1000)
        edit(store, [to])
        check_waited(seconds, seconds)
    bridge.release(func="mail.send")
    assert taken(store) == ["x"]
    assert get(store).state is State.WAITING
    client.hincrby(RECORD, "parked", -20_000)
    edit(store, [2])
    check_waited(60, 40)


def test_what_is_on_hold_stays_on_hold(bridge: Bridge, store: Store, client: redis.Redis) -> None:
    bridge.hold(func="mail.send")
    store.run(declare_limits("aa", PER_TO))
    make_due(store, "a")
    assert taken(store) == []
    for args in ([1, "hi"], [2]):
        edit(store, args)
        assert taken(store) == []
        assert client.zrange(f"{PREFIX}:queue:hold func mail.send", 0, -1) == [b"a"]
    bridge.release(func="mail.send")
    assert [task.args for task in claim(store, "v").tasks] == [b"[2]"]


# Elsewhere.


def test_a_tick_is_edited_and_its_series_keeps_its_arguments(bridge: Bridge) -> None:
    series = bridge.schedule("daily", "mail.send", [1], every="1h")
    [tick] = bridge.list().tasks
    assert bridge.edit(tick.id, [2]) is Change.EDITED_UNCHECKED
    found = bridge.get(tick.id)
    assert found is not None
    assert (found.args, found.tick) == ([2], tick.tick)
    again = bridge.schedule("daily", "mail.send", [1], every="1h")
    assert (again.id, list(again.args)) == (series.id, [1])
    assert [task.args for task in bridge.list().tasks] == [[2]]


def test_what_is_written_is_json(bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("mail.send", [1], 60, id="a")
    bridge.edit("a", kwargs={"to": "é?"})
    call = client.hget(RECORD, "call")
    assert isinstance(call, bytes)
    assert json.loads(call.partition(b"?")[2]) == {"*": [1], "to": "é?"}


async def test_it_runs_once_with_its_new_arguments_whatever_is_heard_of_the_old_key(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    witness = Witness()
    ran: list[tuple[int, str]] = []

    async def send(to: int, subject: str = "hi") -> None:
        ran.append((to, subject))

    made = await async_bridge.make_task("test.send", [1], "1h", id="a")
    async with listening(settings, witness, send=send):
        await witness.until_hearing()
        client.expire(made.key, 7200)
        assert await async_bridge.edit("a", [2]) is Change.EDITED
        client.expire(made.key, 1)  # it has another key by now
        with pytest.raises(InvalidTask, match=r"send\(to, subject=...\): missing"):
            await async_bridge.edit("a", [])
        assert await async_bridge.edit("a", kwargs={"subject": "hello"}) is Change.EDITED
        task = await async_bridge.get("a")
        assert task is not None
        client.pexpire(task.key, 1)
        await witness.until_ended(1)
    assert ran == [(2, "hello")]


def test_an_edited_task_is_exported_and_imported_as_it_is(
    bridge: Bridge, url: str, client: redis.Redis, tmp_path: Path
) -> None:
    bridge.make_task("mail.send", [1], "1h", id="a")
    bridge.make_task("mail.send", [1], "1h", id="large")
    bridge.edit("a", [2])
    bridge.edit("large", LARGE)
    file = str(tmp_path / "tasks")
    invoke("export", file, url=url)
    client.flushdb()
    invoke("import", file, url=url)
    assert {task.id: (task.args, task.key) for task in bridge.list().tasks} == {
        "a": ([2], NEW), "large": (LARGE, b"large:?mail.send?@")
    }  # fmt: skip

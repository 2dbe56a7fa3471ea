"""The functions for clients in other languages, on each server; on Redis 6.2 the scripts."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from expirebridge import Bridge, Change, State
from expirebridge.connection import clients
from expirebridge.errors import InvalidTask
from expirebridge.foreign import function_library
from expirebridge.foreign.function_library import Loading, LoadResult
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.keys import check_args
from expirebridge.task.partitions import PartitionLayout
from tests.kit.dying_producer import Died, dying_after
from tests.kit.patience import PATIENCE
from tests.kit.steps import claim, server_ms, settle

pytestmark = pytest.mark.servers("every")

Ask = Callable[..., Any]

MINE = function_library.version()


def has_functions(client: redis.Redis) -> bool:
    return not client.info("server")["redis_version"].startswith("6.")


@pytest.fixture
def ask(client: redis.Redis, store: Store) -> Ask:
    """Calls a function as any client does; words of the server's replies are text."""
    assert store.run(function_library.load(replace=True)).result in set(LoadResult) - {
        LoadResult.NEWER
    }
    by_function = has_functions(client)

    def call(name: str, *words: Any, prefix: str = "expirebridge") -> Any:
        if by_function:
            reply = client.execute_command("FCALL", f"expirebridge_{name}", 1, prefix, *words)
        else:
            sha = function_library.script(name).sha
            reply = client.execute_command("EVALSHA", sha, 1, prefix, *words)
        return text(reply)

    return call


def text(reply: Any) -> Any:
    if isinstance(reply, list):
        return [text(item) for item in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


def fields(reply: list[Any]) -> dict[str, Any]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def test_what_a_function_makes_is_what_a_bridge_makes(
    ask: Ask, bridge: Bridge, client: redis.Redis
) -> None:
    before = server_ms(client)
    made = ask("make", "mail.send", '[42,"hi"]', 60_000, "id", "a", "tags", "x y",
               "retry", "[15,60]", "timeout", "2.5")  # fmt: skip
    outcome, id, key, due = made
    assert (outcome, id, key) == ("created", "a", 'a:?mail.send?[42,"hi"]')
    assert before + 60_000 <= due <= server_ms(client) + 60_000
    assert 59_000 < client.pttl(key) <= 60_000
    bridge.make_task("mail.send", [42, "hi"], 60, id="b", tags=["x", "y"], retry=[15, 60],
                     timeout=2.5)  # fmt: skip
    records: list[Any] = [client.hgetall(f"expirebridge:task:{id}") for id in "ab"]
    for record in records:
        record.pop(b"nonce", None)
        record.pop(b"made")
        assert [float(delay) for delay in orjson.loads(record.pop(b"retry"))] == [15, 60]
    assert records[0] == records[1]
    assert {task.id for task in bridge.list(tag="y").tasks} == {"a", "b"}


def test_a_throttle_keeps_what_has_run_within_its_window(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    throttled = ("make", "f.g", "[]", 0, "id", "a", "if_exists", "keep", "window", "2.5")
    assert ask(*throttled)[0] == "created"
    assert b"window" not in client.hgetall("expirebridge:task:a")
    [task] = claim(store).tasks
    settle(store, Settlement("a", task.token, "succeeded"))
    assert ask(*throttled)[:3] == ["kept", "a", "a:?f.g?[]"]
    assert claim(store).tasks == []
    client.hincrby("expirebridge:task:a", "started", -2500)
    assert ask(*throttled)[0] == "created"


def test_a_task_is_steered_through_all_its_states(
    ask: Ask, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    key = "a:?f.g?[]"
    for name in ("cancel", "pause", "resume", "run_now"):
        assert ask(name, "a") == "not found"
    assert ask("reschedule", "a", 5) == "not found"
    assert ask("get", "a") is None
    due = server_ms(client) + 50_000
    assert ask("make", "f.g", "[]", f"@{due}", "id", "a") == ["created", "a", key, due]
    for if_exists, outcome in (("reject", "exists"), ("keep", "kept"), ("replace", "replaced"),
                               ("extend", "extended")):  # fmt: skip
        told = ask("make", "f.g", "[]", f"@{due}", "ID", "a", "IF_EXISTS", if_exists)
        assert told == [outcome, "a", key, due]
    assert ask("make", "f.g", "[1]", 5, "id", "a", "if_exists", "extend")[0] == "differs"
    assert [ask("pause", "a"), client.pttl(key)] == ["paused", -1]
    assert fields(ask("get", "a"))["state"] == "paused"
    assert ask("resume", "a") == "resumed"
    assert ask("reschedule", "a", 70_000) == "moved"
    assert client.pttl(key) > 60_000
    assert ask("run_now", "a") == "due now"
    assert [task.id for task in claim(store).tasks] == ["a"]
    assert [ask(name, "a") for name in ("pause", "resume", "run_now")] == ["running"] * 3
    assert ask("reschedule", "a", 60_000) == "rearmed"
    assert ask("cancel", "a") == "running"
    bridge.make_task("f.g", [], 60, id="b")
    assert ask("cancel", "b") == "cancelled"
    shown = fields(ask("get", "b"))
    assert (shown["state"], shown["func"], shown["args"]) == ("cancelled", "f.g", "[]")
    kept: Any = client.zscore("expirebridge:cancelled", "b")
    assert abs(kept - server_ms(client) - Settings().keep_succeeded * 1000) < 60_000
    assert ask("cancel", "b") == "finished"


def test_calls_in_one_transaction_are_calls_of_their_own(
    ask: Ask, client: redis.Redis, bridge: Bridge
) -> None:
    """The server's clock stands still meanwhile."""
    if not has_functions(client):
        pytest.skip("Redis 6.2's clock goes on")
    with client.pipeline() as pipe:
        for name in ("make", "make", "pause", "resume", "pause"):
            words = ("f.g", "[]", 60_000) if name == "make" else ("a",)
            pipe.execute_command("FCALL", f"expirebridge_{name}", 1, "expirebridge", *words)
        pipe.execute_command("PING")
        bridge.make_task("f.g", [], 60, id="a")
        replies = text(pipe.execute())
    assert replies[0][1] != replies[1][1]
    assert replies[2:5] == ["paused", "resumed", "paused"]
    found = bridge.get("a")
    assert found is not None
    assert found.state is State.PAUSED


# Signals

AWAITED = ("make", "orders.cancel", "[42]", 60_000, "id", "a", "on_signal", "orders.ship")


def test_a_signal_of_a_function_is_one_of_a_bridge(
    ask: Ask, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    assert ask(*AWAITED)[0] == "created"
    assert client.hget("expirebridge:meta", "features") == b"signals"
    assert fields(ask("get", "a"))["on_signal"] == "orders.ship"
    assert ask("signal", "a", '{"ref":7}', "psp é") == "signalled"
    assert bridge.signal("a", {"ref": 7}, by="psp é") is Change.SIGNALLED
    assert bridge.signal("a", {"ref": 8}, by="psp é") is Change.SIGNALLED_BEFORE
    shown = fields(ask("get", "a"))
    assert (shown["func"], shown["signal"]) == ("orders.ship", '{"ref":7}')
    assert (shown["lost"], "on_signal" in shown) == ("orders.cancel?[42]", False)
    assert shown["signalled"].endswith(" psp é")
    found = bridge.get("a")
    assert found is not None
    assert found.signal is not None
    assert (found.signal.payload, found.signal.by) == ({"ref": 7}, "psp é")
    [task] = claim(store).tasks
    assert (task.func, task.args) == ("orders.ship", b"[42]")


def test_a_signal_is_answered_in_words(ask: Ask, bridge: Bridge, store: Store) -> None:
    assert ask("signal", "a") == "not found"
    bridge.make_task("f.g", [], 60, id="plain")
    assert ask("signal", "plain") == "not awaited"
    ask(*AWAITED)
    assert [ask("signal", "a"), ask("signal", "a", "null"), ask("signal", "a", "null", "")] == [
        "signalled"
    ] * 3
    assert ask("signal", "a", "7") == "signalled before"
    ask(*AWAITED[:3], 0, "id", "b", "on_signal", "orders.ship")
    claim(store, "one")
    assert ask("signal", "b") == "running"
    settle(store, Settlement("b", "one", "retry", 60.0, "no"))
    assert ask("signal", "b") == "begun"
    bridge.run_now("b")
    claim(store, "two")
    settle(store, Settlement("b", "two", "succeeded"))
    assert ask("signal", "b") == "finished"


def test_a_signal_for_a_task_of_a_ledger_is_for_its_row(ask: Ask, client: redis.Redis) -> None:
    ask(*AWAITED)
    client.hset("expirebridge:ledger", "nonce", "n")
    client.hset("expirebridge:meta", "features", "signals ledger")
    client.hset("expirebridge:task:a", "ledger", "1 1")
    assert ask("signal", "a") == "of a ledger"


PAYLOADS = [
    ("x" * 65_537, "payload: 65537 bytes; at most 65536"),
    ("", "payload: not JSON"),
    ("{", "payload: not JSON"),
    ("{} {}", "payload: not JSON"),
    ("[NaN]", "payload: NaN is no JSON"),
    ("-Infinity", "payload: -Infinity is no JSON"),
    ("18446744073709551616", "payload: an integer is beyond 64 bits"),
    (b'"\xff"', "payload: not UTF-8"),
    ('"\n"', "payload: a control character in a string"),
    ("sealed:k:AAAA", "payload: not JSON"),
]
SENDERS = [
    ("é" * 201, "write at most 200 printable characters"),
    ("a\nb", "by=a?b: write at most"),
    ("\x7f", "by=?: write at most"),
    (b"\xff", "by=?: write at most"),
]


def test_a_bad_signal_is_refused_with_the_reason(ask: Ask, bridge: Bridge) -> None:
    ask(*AWAITED)
    words: list[tuple[tuple[Any, ...], str]] = [
        (("a b",), "id=a b: an id has"),
        ((), "write: expirebridge_signal 1 <prefix> <id> [<payload>] [<by>]"),
        (("a", "1", "by", "more"), "write: expirebridge_signal"),
        *((("a", payload), reason) for payload, reason in PAYLOADS),
        *((("a", "1", by), reason) for by, reason in SENDERS),
    ]
    for given, reason in words:
        with pytest.raises(redis.ResponseError, match="EXPIREBRIDGE_INVALID") as refused:
            ask("signal", *given)
        assert reason in str(refused.value)
        assert "AAAA" not in str(refused.value)
    found = bridge.get("a")
    assert found is not None
    assert found.on_signal == "orders.ship"
    assert ask("signal", "a", '"%s"' % ("x" * 65_534), "é" * 200) == "signalled"


# Urgent tasks


def test_an_urgent_task_is_made_by_a_function(ask: Ask, bridge: Bridge, store: Store) -> None:
    bridge.make_task("mail.send", [], 0, id="old")
    assert ask("make", "mail.send", "[1]", 0, "id", "u", "urgent", "1")[0] == "created"
    assert fields(ask("get", "u"))["urgent"] == "1"
    assert "urgent" not in fields(ask("get", "old"))
    assert [task.id for task in claim(store, places=1).tasks] == ["u"]
    with pytest.raises(redis.ResponseError, match="urgent=yes: write 1"):
        ask("make", "mail.send", "[1]", 0, "urgent", "yes")


# Groups


def test_a_group_runs_its_follow_up_once(
    ask: Ask, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    began = ("make_group", "g", "then", "f.report", "[7]", "DELAY", 5_000, "on_failed", "run")
    assert [ask(*began), ask(*began)] == ["made", "there"]
    assert ask(*began[:-1], "wait") == "differs"
    members = [("make", "f.g", "[]", 0, "id", f"g@g{n}", "if_exists", "keep") for n in range(2)]
    assert [ask(*member)[0] for member in members * 2] == ["created"] * 2 + ["kept"] * 2
    assert fields(ask("get_group", "g")) | {"made": "-"} == {
        "name": "g", "state": "open", "total": "2", "left": "2", "succeeded": "0", "failed": "0",
        "cancelled": "0", "on_failed": "run", "made": "-", "then": "g@then",
    }  # fmt: skip
    assert [ask("close_group", "g"), ask("close_group", "g")] == ["closed", "closed"]
    assert ask("make", "f.g", "[]", 0, "id", "g@g2") == ["closed", "g@g2"]
    settle(store, *(Settlement(t.id, t.token, "failed") for t in claim(store).tasks))
    told = fields(ask("get_group", "g"))
    assert (told["state"], told["total"], told["left"], told["failed"]) == ("ended", "2", "0", "2")
    assert 0 < client.pttl("g@then:?f.report?[7]") <= 5_000
    bridge.run_now("g@then")
    [follow_up] = claim(store).tasks
    assert (follow_up.id, follow_up.func, follow_up.args) == ("g@then", "f.report", b"[7]")
    assert ask(*members[0])[0] == "kept"
    assert [ask("cancel_group", "g"), ask(*began)] == ["ended", "there"]


def test_a_group_is_the_same_however_its_delay_is_spelled(ask: Ask) -> None:
    began = ("make_group", "g", "then", "f.report", "[7]")
    assert ask(*began, "delay", "00") == "made"
    assert [ask(*began, "delay", "0"), ask(*began), ask(*began, "delay", "000")] == ["there"] * 3
    assert ask(*began, "delay", "01") == "differs"


def test_a_group_of_a_function_is_one_of_a_bridge(ask: Ask, bridge: Bridge) -> None:
    ask("make_group", "g", "then", "f.report", "[7]")
    ask("make", "f.g", "[]", 60_000, "id", "g@g4")
    [added] = bridge.make_tasks([{"func": "f.g", "delay": 60}], group="g")
    assert added.id == "g@g5"
    group = bridge.get_group("g")
    assert group is not None
    assert (group.state, group.total, group.then) == ("open", 2, "g@then")
    found = bridge.get("g@then")
    assert found is not None
    assert (found.func, found.args, found.state) == ("f.report", [7], State.PAUSED)


def test_a_group_that_lacks_members_is_not_closed(ask: Ask, bridge: Bridge) -> None:
    ask("make_group", "g")
    for number in (0, 2):
        ask("make", "f.g", "[]", 0, "id", f"g@g{number}")
    assert [ask("close_group", "g", 3), ask("close_group", "g", 4)] == ["lacking"] * 2
    ask("make", "f.g", "[]", 0, "id", "g@g1")
    assert [ask("close_group", "g", count) for count in (3, 4)] == ["closed"] * 2
    with dying_after(1), suppress(Died):
        bridge.make_group("h", [{"func": "f.g", "delay": 60}] * 2)
    assert [ask("close_group", "h"), ask("close_group", "h", 1)] == ["lacking"] * 2


def test_a_group_waits_for_a_failed_member(ask: Ask, store: Store) -> None:
    ask("make_group", "g")
    ask("make", "f.g", "[]", 0, "id", "g@g0")
    ask("close_group", "g")
    [task] = claim(store).tasks
    settle(store, Settlement(task.id, task.token, "failed"))
    told = fields(ask("get_group", "g"))
    assert (told["state"], told["total"], told["left"], told["failed"]) == ("closed", "1", "1", "1")
    assert "then" not in told


def test_a_group_is_cancelled_a_hundred_at_a_time(ask: Ask, bridge: Bridge) -> None:
    bridge.make_group("g", [{"func": "f.g", "delay": 60}] * 150)
    assert [ask("cancel_group", "g") for _ in range(3)] == ["more", "cancelled", "cancelled"]
    told = fields(ask("get_group", "g"))
    assert (told["state"], told["cancelled"], told["left"]) == ("cancelled", "150", "0")
    assert int(told["stopped"]) <= int(told["ended"])


def test_where_there_is_no_group_of_that_name(ask: Ask, bridge: Bridge) -> None:
    for _ in range(2):
        assert ask("get_group", "g") is None
        assert [ask("close_group", "g"), ask("cancel_group", "g")] == ["not found"] * 2
        assert ask("make", "f.g", "[]", 0, "id", "g@g0") == ["no group", "g@g0"]
        bridge.make_group("other")  # the database has groups then
    bridge.make_task("f.g", delay=60, id="g@then")
    assert ask("make_group", "g", "then", "f.g", "[]") == "taken"
    assert ask("get_group", "g") is None


def test_long_arguments_of_a_follow_up_are_in_its_record(ask: Ask, bridge: Bridge) -> None:
    args = orjson.dumps(["x" * 600]).decode()
    assert [ask("make_group", "g", "then", "f.g", args) for _ in range(2)] == ["made", "there"]
    assert ask("make_group", "g", "then", "f.g", args.replace("x", "y")) == "differs"
    found = bridge.get("g@then")
    assert found is not None
    assert (found.args, found.key) == (["x" * 600], b"g@then:?f.g?@")


REFUSED_GROUPS = [
    ((), "write: expirebridge_make_group 1 <prefix> <name> [then"),
    (("a b",), "group=a b: a group's name has 1 to 100"),
    (("a@g0",), "group=a@g0: a group's name has"),
    (("x" * 101,), "a group's name has 1 to 100"),
    (("g", "then", "f.g"), "write: expirebridge_make_group"),
    (("g", "then"), "write: expirebridge_make_group"),
    (("g", "then", "g", "[]"), "func=g: write module.function"),
    (("g", "then", "f.g", "[1"), "args: not JSON"),
    (("g", "then", "f.g", "[]", "delay", "@5"), "delay=@5: write milliseconds from"),
    (("g", "then", "f.g", "[]", "delay", "1d"), "when=1d: write milliseconds"),
    (("g", "delay", "5"), "delay: it goes with then"),
    (("g", "on_failed", "stop"), "on_failed=stop: one of wait, run, cancel"),
    (("g", "close", "1"), "close is no option; there are then, delay, on_failed"),
]


def test_a_bad_group_is_refused_with_the_reason(ask: Ask, client: redis.Redis) -> None:
    for words, reason in REFUSED_GROUPS:
        with pytest.raises(redis.ResponseError, match="EXPIREBRIDGE_INVALID") as refused:
            ask("make_group", *words)
        assert reason in str(refused.value)
    for members in ("many", "-1", "1.5", "100001"):
        with pytest.raises(redis.ResponseError, match=f"members={members}: write how many it has"):
            ask("close_group", "g", members)
    for name in ("close_group", "cancel_group", "get_group"):
        with pytest.raises(redis.ResponseError, match="a group's name has"):
            ask(name, "a@b")
    assert client.dbsize() == 0


def test_a_group_of_another_partition_is_refused(ask: Ask, bridge: Bridge) -> None:
    bridge.create_partitions(4)
    layout = PartitionLayout("expirebridge", 4)
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        mine = layout.partition_of(name)
        prefixes = [layout.prefix_of(number) for number in range(4)]
        assert ask("make_group", name, prefix=prefixes[mine]) == "made"
        assert ask("make", "f.g", "[]", 0, "id", f"{name}@g0", prefix=prefixes[mine])
        with pytest.raises(redis.ResponseError, match=f"group={name}: it belongs to another part"):
            ask("make_group", name, prefix=prefixes[mine - 1])
    assert len(bridge.list_groups().groups) == 8
    assert {group.total for group in bridge.list_groups().groups} == {1}


def test_long_arguments_are_in_the_record(ask: Ask, bridge: Bridge) -> None:
    args = orjson.dumps(["x" * 600]).decode()
    assert ask("make", "f.g", args, 60_000, "id", "a")[2] == "a:?f.g?@"
    assert fields(ask("get", "a"))["args"] == args
    found = bridge.get("a")
    assert found is not None
    assert found.args == ["x" * 600]


ARGUMENTS: list[str | bytes] = [
    "[]", " [1, -2.5, 1e3, 0.5E-3, 0, -0, true, false, null]", '{"a":1}', '{"*":[1],"a":2}', "{}",
    '["NaN 01 \\" ,99999999999999999999999"]', "[18446744073709551615,-9223372036854775808]",
    '["\\\\",1]', '["\u00e9\u20ac\U0001f389"]', '["?:{}"]', '{"*":[]}',
    "[1", "42", '"x"', "", "[NaN]", "[nan]", "[Infinity]", "[01]", "[1.]", "[.5]", "[+1]", "[0x1]",
    "[18446744073709551616]", "[-9223372036854775809]", "[1,]", '{"*":1}', '{"*":null}',
    '{"*":false}', '{"*":{"a":1}}', b'["\xff"]', b'["\xed\xa0\x80"]', b'["\xc0\xaf"]', "['a']",
    '["%s"]' % ("x" * 65_536), "[1e999]", "[-1e999]", '{"*":{}}', '{"*" : { }}',
    '["a\nb"]', '["\x01"]', '["\x00"]', '{"\t":1}', '["\x7f\\n\\u0001"]', '[\n"a",\t1\r]',
]  # fmt: skip


def test_arguments_are_taken_and_refused_as_python_does(ask: Ask) -> None:
    for args in ARGUMENTS:
        encoded = args.encode() if isinstance(args, str) else args
        try:
            check_args(encoded)
        except InvalidTask:
            with pytest.raises(redis.ResponseError, match="EXPIREBRIDGE_INVALID args: "):
                ask("make", "f.g", args, 60_000)
        else:
            assert ask("make", "f.g", args, 60_000)[0] == "created", args


REFUSED = [
    (("../f.g", "[]", "1"), "func=../f.g: write module.function"),
    (("f", "[]", "1"), "func=f: write"),
    (("a//f.g", "[]", "1"), "func=a//f.g"),
    (("f.g?", "[]", "1"), "func=f.g?"),
    (("a/" * 99 + "ff.g", "[]", "1"), "at most 200 bytes"),
    (("f.g", "[]", "-1"), "when=-1: write milliseconds"),
    (("f.g", "[]", "1.5"), "when=1.5"),
    (("f.g", "[]", "4000000000000"), "at most 100 years"),
    (("f.g", "[]", "1", "id", "a b"), "id=a b: an id has"),
    (("f.g", "[]", "1", "id", "x" * 129), "an id has 1 to 128"),
    (("f.g", "[]", "1", "tags", "a ü"), "a tag has"),
    (("f.g", "[]", "1", "retry", "60"), "retry: write an array of seconds"),
    (("f.g", "[]", "1", "retry", '["1m"]'), "retry: write an array of seconds"),
    (("f.g", "[]", "1", "timeout", "0"), "timeout=0: write seconds, above 0"),
    (("f.g", "[]", "1", "if_exists", "no"), "one of reject, keep, replace, extend"),
    (("f.g", "[]", "1", "if_exists", "keep"), "if_exists=keep: it goes with an id"),
    (
        ("f.g", "[]", "1", "id", "a", "window", "9"),
        "window: it goes with if_exists keep, and an id",
    ),
    (("f.g", "[]", "1", "if_exists", "keep", "window", "9"), "window: it goes with"),
    (("f.g", "[]", "1", "id", "a", "if_exists", "keep", "window", "0"), "window=0: write seconds"),
    (("f.g", "[]", "1", "id", "a", "if_exists", "keep", "window", "3601"), "at most 3600"),
    (("f.g", "[]", "1", "on_signal", "f.g"), "on_signal=f.g: it is the function that runs at"),
    (("f.g", "[]", "1", "on_signal", "g"), "on_signal=g: write module.function"),
    (("f.g", "[]", "1", "colour", "red"), "colour is no option"),
    (("f.g", "[]", "1", "id"), "write: expirebridge_make 1 <prefix> <func> <args> <when>"),
    (("f.g", "[]"), "write: expirebridge_make 1 <prefix> <func> <args> <when>"),
]


def test_bad_input_is_refused_with_the_reason_and_nothing_is_written(
    ask: Ask, client: redis.Redis
) -> None:
    for words, reason in REFUSED:
        with pytest.raises(redis.ResponseError, match="EXPIREBRIDGE_INVALID") as refused:
            ask("make", *words)
        assert reason in str(refused.value)
    assert client.dbsize() == 0


def test_a_call_without_the_prefix_is_refused(ask: Ask, client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError, match="give one key, the prefix"):
        ask("get", "a", prefix="a:?f.g?[]")


def test_a_newer_format_is_refused(ask: Ask, client: redis.Redis) -> None:
    client.hset("expirebridge:meta", "format", 2)
    with pytest.raises(redis.ResponseError, match="EXPIREBRIDGE_FORMAT 2 1"):
        ask("make", "f.g", "[]", 60_000)
    with pytest.raises(redis.ResponseError, match="EXPIREBRIDGE_FORMAT 2 1"):
        ask("get", "a")


def test_a_listener_s_database_is_told_of_a_new_earliest_task(
    ask: Ask, store: Store, client: redis.Redis
) -> None:
    """A caller does not say which database it is in; a listener has."""
    with client.pubsub() as heard:
        heard.subscribe("expirebridge:doorbell:1")
        heard.get_message(timeout=PATIENCE)
        ask("make", "f.g", "[]", 60_000)  # no listener has ever been here
        store.run(claiming.heartbeat("me", 10, [], code="c0de"))
        heard.get_message(timeout=PATIENCE)  # a listener joined: all beat
        due = ask("make", "f.g", "[]", 50_000)[3]
        told = heard.get_message(timeout=PATIENCE)
    assert told is not None
    assert told["data"] == str(due).encode()


def test_libraries_of_other_versions_are_replaced_knowingly(
    store: Store, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_functions(client):
        assert store.run(function_library.load(replace=False)) == Loading(LoadResult.SCRIPTS)
        assert client.script_exists(function_library.script("make").sha) == [True]
        return
    client.function_flush()
    assert store.run(function_library.load(replace=False)) == Loading(LoadResult.LOADED)
    assert store.run(function_library.load(replace=False)) == Loading(LoadResult.SAME, MINE)
    assert client.execute_command("FCALL_RO", "expirebridge_version", 0) == MINE.encode()
    mine = function_library.library_text()
    other = mine.replace(f"-- version: {MINE}", "-- version: 0.0.9")
    client.function_load(other, replace=True)
    assert store.run(function_library.load(replace=False)) == Loading(LoadResult.REPLACED, "0.0.9")
    newer = mine.replace(f"-- version: {MINE}", "-- version: 99.0.10")
    client.function_load(newer, replace=True)
    assert store.run(function_library.load(replace=False)) == Loading(LoadResult.NEWER, "99.0.10")
    assert store.run(function_library.load(replace=True)) == Loading(LoadResult.REPLACED, "99.0.10")


def test_another_database_s_tasks_are_its_own(ask: Ask, url: str) -> None:
    ask("make", "f.g", "[]", 60_000, "id", "a")
    with closing(Store(clients.producer_client(url[:-1] + "2"), prefix="expirebridge")) as other:
        assert other.client.dbsize() == 0


# What no function does

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "wire-protocol.md").read_text()


def by_hand(client: redis.Redis, name: str, *words: Any) -> Any:
    """Runs a script that the page's own command prints."""
    command = PAGE[PAGE.index("    python -c ") :].partition("\n\n")[0].strip()
    assert command.count("load('count').headed") == 1
    part = "headed" if has_functions(client) else "plain"
    command = command.replace("load('count').headed", f"load('{name}').{part}")
    command = command.replace("python", sys.executable, 1)
    script = subprocess.run(  # noqa: S602
        command, shell=True, check=True, capture_output=True, text=True
    ).stdout
    return client.eval(script, 1, "expirebridge", 1, *words)


def test_a_script_that_is_sent_by_hand_works(bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("mail.send", [42], "60s", id="a")
    bridge.watch("watched", "mail.send", [42], ttl="60s")
    assert by_hand(client, "put_off", "", 30_000, "a", "nobody") == [1, 5]
    assert by_hand(client, "beat", "watched") == 1
    assert by_hand(client, "count", 10_000) == [2, 0, 0, 0, 0, 0, 0, 0, 0]
    [cursor, looked_at, (id, key, *_), _] = by_hand(client, "list", "pending", "", "", "0", 10, "")
    assert (cursor, looked_at, id, key) == (b"0", 2, b"watched", b"watched:?mail.send?[42]")
    assert client.pttl("a:?mail.send?[42]") > 60_000

"""What producers may ask for: everything is checked before the first call is made."""

import gc
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

import expirebridge
from expirebridge import handler
from expirebridge.bridge import Operations
from expirebridge.errors import InvalidTask, TaskExists
from expirebridge.handlers import Registry
from expirebridge.hooks import Event, Hooks, Made, Making
from expirebridge.settings import Settings
from expirebridge.task.calls.call import (
    CHUNK_BYTES,
    Command,
    Runnable,
    When,
)
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.new_task import CHUNK_TASKS
from expirebridge.task.policies import Exponential, Spread, decode_misfire, misfire_policy_of
from expirebridge.task.task import Change, Outcome, State, Task, from_ms
from tests.kit.cases import each
from tests.kit.first_calls import first_call, to_call

OPERATIONS = Operations(Settings(), Hooks())
NOW = 1_900_000_000_000
FUTURE = datetime(2035, 1, 1, tzinfo=UTC)


def new_tasks(call: Command[Any]) -> list[NewTask]:
    """The tasks of a call to make.lua or another script, read back from its arguments."""
    rest: list[Any] = list(call.arguments[1:])
    tasks = []
    while rest:
        id, drawn, if_exists, name, anchor, ms, count = rest[:7]
        pairs, rest = rest[7 : 7 + 2 * count], rest[7 + 2 * count :]
        tasks.append(
            NewTask(
                id=id,
                has_random_id=drawn == "1",
                if_exists=if_exists,
                call=name,
                when=When(ms, relative=anchor == "in"),
                fields=dict(zip(pairs[::2], pairs[1::2], strict=True)),
            )
        )
    drawn = "make_drawn_many" if len(tasks) > 1 else "make_drawn"
    assert call.name == (drawn if all(task.has_random_id for task in tasks) else "make")
    return tasks


def new_task(func: Any = "mail.send", args: Any = (), delay: Any = 60, **options: Any) -> NewTask:
    """The one task that `make_task` would send."""
    [task] = new_tasks(first_call(OPERATIONS.make_task(func, args, delay, **options)))
    return task


def answer(call: Command[Any], code: int = 1, state: bytes = b"pending") -> list[Any]:
    """What make.lua answers when every task of the call has the same fate.

    The keys have a hash tag: only the server knows what it put before the id.
    """
    reply: list[Any] = [NOW]
    for task in new_tasks(call):
        due = NOW + task.when.ms if task.when.relative else task.when.ms
        key = f"{{tag}}{task.id}:?".encode() + task.call
        args = task.fields.get("args")
        plain = code == 1 and state == b"pending" and not args
        reply += [due, key, None if plain else [code, task.call, state, args]]
    return reply


def run(runnable: Runnable[Any], **fate: Any) -> tuple[list[Command[Any]], Any]:
    """Every call of an operation that makes tasks, and its result."""
    steps = iter(runnable)
    calls: list[Command[Any]] = []
    reply: Any = None
    try:
        while True:
            call = to_call(steps, reply)
            calls.append(call)
            reply = answer(call, **fate)
    except StopIteration as stop:
        return calls, stop.value


# Bad input


@each(
    ("options", "named"),
    [
        ({"delay": None}, "either delay or at"),
        ({"at": FUTURE}, "either delay or at, not both"),
        ({"delay": -1}, "delay=-1"),
        ({"delay": timedelta(seconds=-1)}, "delay="),
        ({"delay": "soon"}, "delay='soon'"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"delay": True}, "delay=True"),
        ({"delay": 10**400}, "delay=1000"),
        ({"delay": None, "at": datetime(2035, 1, 1)}, "at=2035-01-01T00:00:00: a naive"),
        ({"delay": None, "at": "2035-01-01"}, "at='2035-01-01'"),
        ({"delay": None, "at": date(2035, 1, 1)}, "at="),
        ({"delay": None, "at": 1_900_000_000}, "at=1900000000"),
        ({"if_exists": "overwrite"}, "if_exists='overwrite'"),
        ({"if_exists": ["keep"]}, "if_exists="),
        ({"if_exists": None}, "if_exists=None"),
        ({"if_exists": "keep"}, "if_exists='keep': it requires an id"),
        ({"if_exists": "replace"}, "if_exists='replace': it requires an id"),
        ({"if_exists": "extend"}, "if_exists='extend': it requires an id"),
        ({"id": "a?b"}, "id='a?b'"),
        ({"id": ""}, "id=''"),
        ({"id": 42}, "id=42"),
        ({"tags": "mail"}, "tags='mail'"),
        ({"tags": ""}, "tags=''"),
        ({"tags": ["a b"]}, "tag 'a b'"),
        ({"tags": [42]}, "tag 42"),
        ({"tags": 42}, "tags=42"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"retry": "1m"}, "retry='1m'"),
        ({"retry": [-1]}, "retry[0]=-1"),
        ({"retry": 3}, "retry=3"),
        ({"func": ""}, "func=''"),
        ({"func": "send"}, "func='send'"),
        ({"func": "../mail.send"}, "func='../mail.send'"),
        ({"func": b"mail.send"}, "func=b'mail.send'"),
        ({"func": None}, "func=None"),
        ({"func": print}, "func=print"),
        ({"func": new_task}, "func=new_task"),
        ({"args": "hi"}, "args='hi'"),
        ({"args": None}, "args=None"),
        ({"args": [0, {"x": (1,)}]}, "args[1]['x'] = (1,)"),
        ({"args": ["x" * 65_536]}, "args: 65,540 bytes"),
        ({"kwargs": ["hi"]}, "kwargs="),
        ({"kwargs": {"*": 1}}, "'*' is taken"),
        ({"kwargs": {1: 1}}, "the key 1 is not text"),
        ({"kwargs": {"x": float("inf")}}, "['x'] = inf"),
    ],
)
def test_a_task_that_cannot_be_is_refused_before_anything_is_sent(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidTask) as caught:
        new_task(**options)
    assert named in str(caught.value)
    # The same in bulk, where the message tells the position.
    item = {"func": "mail.send", "delay": 60, **options}
    with pytest.raises(InvalidTask) as caught:
        first_call(OPERATIONS.make_tasks([{"func": "mail.send", "delay": 60}, item]))
    assert str(caught.value).startswith("task 1: ")
    assert named in str(caught.value)


@each(
    ("item", "named"),
    [
        ({"func": "mail.send", "dely": 60}, "'dely'"),
        ({"func": "mail.send", "delay": 60, "self": 1}, "'self'"),
        ({"delay": 60}, "'func'"),
        ({}, "'func'"),
        ({"func": "mail.send"}, "either delay or at"),
        ({1: 2}, "must be strings"),
        (42, "mapping"),
        ("mail.send", "mapping"),
        (("mail.send", [], 60), "mapping"),
    ],
)
def test_a_bad_item_is_told_by_its_position(item: Any, named: str) -> None:
    good = {"func": "mail.send", "delay": 60}
    with pytest.raises(InvalidTask) as caught:
        first_call(OPERATIONS.make_tasks([good, good, item, good]))
    assert str(caught.value).startswith("task 2: ")
    assert named in str(caught.value)
    # The names inside of expirebridge say nothing to its users.
    assert "new_task" not in str(caught.value)
    assert "expirebridge." not in str(caught.value)


def test_ids_repeated_in_bulk_are_refused_by_both_positions() -> None:
    items = [{"func": "mail.send", "delay": 60, "id": id} for id in ("a", "b", "c", "b")]
    with pytest.raises(InvalidTask, match=r"^task 3: id 'b' is also the id of task 1$"):
        first_call(OPERATIONS.make_tasks(items))


@each(
    ("options", "named"),
    [
        ({"state": "sleeping"}, "state='sleeping'"),
        ({"state": 1}, "state=1"),
        ({"func": "send"}, "func='send'"),
        ({"tag": "a b"}, "tag 'a b'"),
        ({"tag": 42}, "tag 42"),
        ({"limit": 0}, "limit=0"),
        ({"limit": -1}, "limit=-1"),
        (
            {"cursor": "0"},
            "cursor='0': give the cursor of a listing with the same state, tag and group",
        ),
        ({"cursor": 1}, "cursor=1"),
        ({"cursor": "pending.-1.0"}, "cursor='pending.-1.0'"),
        ({"cursor": "pending.4503599627370496.0"}, "cursor="),  # 2**52, which is no rank
        ({"tag": "t", "cursor": "any.18446744073709551616.0"}, "cursor="),
        ({"cursor": "sleeping.1.0"}, "cursor='sleeping.1.0'"),
        ({"state": "failed", "cursor": "pending.1.0"}, "cursor='pending.1.0'"),
        ({"tag": "t", "cursor": "pending.1.0"}, "cursor='pending.1.0'"),
    ],
)
def test_a_listing_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        first_call(OPERATIONS.list(**options))
    assert named in str(caught.value)


@each(
    ("id", "options", "named"),
    [
        ("a b", {}, "id='a b'"),
        (None, {}, "id=None"),
        ("a", {"ttl": 0}, "ttl=0: it must be at least a millisecond"),
        ("a", {"ttl": -1}, "ttl=-1"),
        ("a", {"ttl": "soon"}, "ttl='soon'"),
        ("a", {"tags": ["a b"]}, "tag 'a b'"),
    ],
)
def test_a_watch_that_cannot_be_is_refused(id: Any, options: Any, named: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(named)):
        first_call(OPERATIONS.watch(id, "mail.send", **{"ttl": 60} | options))


@each(
    ("options", "named"),
    [
        ({"max_wait": 59.9}, "max_wait=59.9: it is shorter than delay=60"),
        ({"max_wait": -1}, "max_wait=-1"),
        ({"max_wait": "soon"}, "max_wait='soon'"),
        ({"if_exists": "keep"}, "if_exists='extend' and 'replace', not 'keep'"),
        ({"if_exists": "reject"}, "not 'reject'"),
        ({"id": None}, "it requires an id, or the task cannot be put off again"),
        ({"delay": None, "at": FUTURE}, "it requires delay, not at"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    given = {"id": "a", "if_exists": "extend", "max_wait": "5m"} | options
    with pytest.raises(InvalidTask, match=re.escape(named)):
        new_task(**given)


@each(
    ("options", "named"),
    [
        ({"window": 0}, "window=0: it must be at least a millisecond"),
        ({"window": "soon"}, "window='soon'"),
        (
            {"window": "61m"},
            "window='61m': at most 1h, since a finished task is forgotten after that",
        ),
        ({"if_exists": "reject"}, "if_exists='keep', not 'reject'"),
        ({"if_exists": "extend"}, "if_exists='keep', not 'extend'"),
        ({"id": None}, "it requires an id"),
    ],
)
def test_a_throttle_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(named)):
        new_task(**{"id": "a", "if_exists": "keep", "window": "10s"} | options)


def test_a_throttle_is_sent_in_ms() -> None:
    assert new_task(id="a", if_exists="keep", window="1h").fields == {"window": 3_600_000}


@each(
    ("options", "named"),
    [
        ({"late_after": "5m"}, "late_after='5m': add what to do then"),
        ({"misfire": "skip"}, "misfire='skip': add when a task is late"),
        ({"misfire": Spread(60)}, "add when a task is late"),
        ({"misfire": "later", "late_after": 60}, "misfire='later': give 'run', 'skip' or Spread"),
        ({"misfire": 60, "late_after": 60}, "misfire=60"),
        ({"misfire": "run", "late_after": 60}, "leave out late_after"),
        ({"misfire": "skip", "late_after": -1}, "late_after=-1"),
        ({"misfire": "skip", "late_after": 0}, "late_after=0: it must be above 0"),
        ({"misfire": "skip", "late_after": "soon"}, "late_after='soon'"),
    ],
)
def test_a_misfire_policy_that_cannot_be_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(named)):
        new_task(**options)
    with pytest.raises(InvalidTask, match=re.escape(named)):
        handler(**options)


@each("over", [0, -1, "soon", "0s"])
def test_a_window_that_cannot_be_is_refused(over: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^over="):
        Spread(over)


@each(
    ("options", "stored"),
    [
        ({}, None),
        ({"misfire": "run"}, '["run"]'),
        ({"misfire": "skip", "late_after": "5m"}, '["skip",300.0]'),
        ({"misfire": Spread("10m"), "late_after": 60}, '["spread",60.0,600.0]'),
    ],
)
def test_a_misfire_policy_goes_into_the_record(options: dict[str, Any], stored: str | None) -> None:
    assert new_task(**options).fields.get("misfire") == stored
    if stored is not None:
        assert decode_misfire(stored.encode()) == misfire_policy_of(
            options.get("late_after"), options["misfire"]
        )


def test_a_limit_is_sent_in_ms() -> None:
    task = new_task(delay="5m", id="a", if_exists="replace", max_wait="5m")
    assert task.fields == {"max_wait": 300_000}


def test_a_watched_task_is_extended_and_its_record_holds_its_time() -> None:
    [task] = new_tasks(first_call(OPERATIONS.watch("a", "mail.send", [1], ttl="1m", tags=["t"])))
    assert (task.if_exists, task.when) == ("extend", When(60_000, relative=True))
    assert task.fields == {"tags": "t", "ttl": 60_000}


def test_no_operation_takes_an_illegal_id() -> None:
    for ask in (
        lambda: OPERATIONS.get("a?b"),
        lambda: OPERATIONS.cancel("a?b"),
        lambda: OPERATIONS.beat("a?b"),
        lambda: OPERATIONS.reschedule("a?b", 60),
        lambda: OPERATIONS.put_off("a?b", 60),
        lambda: OPERATIONS.pause("a?b"),
        lambda: OPERATIONS.resume("a?b"),
        lambda: OPERATIONS.run_now("a?b"),
    ):
        with pytest.raises(InvalidTask, match=r"^id='a"):
            first_call(ask())


@each("tag", ["a b", "", "x" * 10_000, "a\n", None])
def test_no_operation_takes_an_illegal_tag(tag: Any) -> None:
    for ask in (
        lambda: OPERATIONS.cancel_tag(tag),
        lambda: OPERATIONS.put_off_tag(tag, 60),
        lambda: OPERATIONS.pause_tag(tag),
        lambda: OPERATIONS.resume_tag(tag),
        lambda: OPERATIONS.make_task("mail.send", [], 60, tags=[tag]),
        *([lambda: OPERATIONS.list(tag=tag)] if tag is not None else []),
    ):
        with pytest.raises(InvalidTask, match=r"^tag .{1,60}: a tag has 1 to 128 characters"):
            first_call(ask())


@each("by", [-1, "soon", float("nan"), None])
def test_a_task_is_not_put_off_by_what_is_no_duration(by: Any) -> None:
    for ask in (lambda: OPERATIONS.put_off("a", by), lambda: OPERATIONS.put_off_tag("t", by)):
        with pytest.raises(InvalidTask, match=r"^by="):
            first_call(ask())


def test_an_id_that_is_shown_twice_is_put_off_once() -> None:
    """A set that grows while it is walked over may show an id twice."""
    row = [b"a", b"a:?f.g?[]", b"pending", NOW, [b"call", b"f.g?[]"]]
    steps = OPERATIONS.put_off_tag("t", 60)
    assert to_call(steps).name == "list"
    assert steps.send([b"7", 2, row, row]).arguments[2:] == ("a",)
    assert steps.send([1]).name == "list"
    with pytest.raises(StopIteration) as stop:
        to_call(steps, [b"0", 1, row])
    assert stop.value.value == {Change.MOVED: 1, Change.RUNNING: 0}


@each(
    ("options", "named"),
    [
        ({}, "either delay or at"),
        ({"delay": 60, "at": FUTURE}, "not both"),
        ({"delay": -1}, "delay=-1"),
        ({"at": datetime(2035, 1, 1)}, "naive"),
    ],
)
def test_a_task_is_not_moved_to_a_time_that_cannot_be(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidTask, match=named):
        first_call(OPERATIONS.reschedule("a", **options))


# What is sent


def test_a_task_is_sent_as_its_key_is_written() -> None:
    task = new_task("shop/mail.send", [42, "?"], "1h30m", kwargs={"copy": True})
    assert task.call == b'shop/mail.send?{"*":[42,"?"],"copy":true}'
    assert task.when == When(5_400_000, relative=True)
    assert (task.if_exists, task.fields) == ("reject", {})


def test_without_an_id_a_random_one_is_drawn() -> None:
    one, other = new_task(), new_task()
    assert one.has_random_id
    assert len(one.id) == 32
    assert one.id != other.id


def test_a_chosen_id_is_sent_as_such() -> None:
    task = new_task(id="order:42", if_exists="keep")
    assert (task.id, task.has_random_id, task.if_exists) == ("order:42", False, "keep")


@each(
    ("at", "ms"),
    [
        (FUTURE, 2_051_222_400_000),
        (FUTURE.astimezone(timezone(timedelta(hours=8))), 2_051_222_400_000),
        (FUTURE + timedelta(microseconds=1), 2_051_222_400_001),
        (datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC), 1_000_000_000_000),
        (datetime(1960, 1, 1, tzinfo=UTC), 0),
    ],
)
def test_a_moment_is_sent_as_it_is_even_if_it_has_passed(at: datetime, ms: int) -> None:
    assert new_task(delay=None, at=at).when == When(ms, relative=False)


def test_what_a_task_says_for_itself_goes_into_its_record() -> None:
    task = new_task(tags=["b", "a", "b"], retry=[15, "1m"], timeout="2m")
    assert task.fields == {"tags": "b a", "retry": "[15.0,60.0]", "timeout": 120.0}
    assert new_task(retry=[]).fields == {"retry": "[]"}
    assert '"factor"' in str(new_task(retry=Exponential()).fields["retry"])


def test_arguments_of_512_bytes_stand_in_the_key() -> None:
    longest = "x" * (512 - len('[""]'))
    task = new_task(args=[longest])
    assert task.call == f'mail.send?["{longest}"]'.encode()
    assert task.fields == {}


def test_longer_arguments_go_into_the_record() -> None:
    longer = "x" * (513 - len('[""]'))
    task = new_task(args=[longer])
    assert task.call == b"mail.send?@"
    assert task.fields == {"args": f'["{longer}"]'.encode()}


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of handlers in a folder of its own, loaded."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = tmp_path / f"handlers_{uuid4().hex}"
    folder.mkdir()
    (folder / "mail.py").write_text("def send(to, *, copy=False): ...", encoding="utf-8")
    Registry.load(folder)
    yield sys.modules[f"{folder.name}.mail"]
    for name in list(sys.modules):
        if name.partition(".")[0] == folder.name:
            del sys.modules[name]


def test_a_handler_may_be_given_itself_and_its_call_is_checked(tasks: ModuleType) -> None:
    folder = Path(str(tasks.__file__)).parent
    operations = Operations(Settings(tasks=folder), Hooks())
    [task] = new_tasks(first_call(operations.make_task(tasks.send, [42], 60)))
    assert task.call == b"mail.send?[42]"
    with pytest.raises(InvalidTask, match=r"^send\(to, \*, copy=False\): missing.*'to'"):
        first_call(operations.make_task(tasks.send, [], 60))
    with pytest.raises(InvalidTask, match="unexpected keyword argument 'colour'"):
        first_call(operations.make_task(tasks.send, [42], 60, kwargs={"colour": "red"}))


def test_a_call_makes_the_task_that_its_parts_make(tasks: ModuleType) -> None:
    operations = Operations(Settings(tasks=Path(str(tasks.__file__)).parent), Hooks())
    call = expirebridge.Call(tasks.send, 42, copy=True)
    [apart] = new_tasks(
        first_call(operations.make_task(tasks.send, [42], 60, kwargs={"copy": True}, id="a"))
    )
    [together] = new_tasks(first_call(operations.make_task(call, delay=60, id="a")))
    [among_many] = new_tasks(first_call(operations.make_tasks([{"func": call, "delay": 60}])))
    [watched] = new_tasks(first_call(operations.watch("a", call, ttl=60)))
    assert apart == together
    assert apart.call == among_many.call == watched.call


def test_a_call_that_does_not_fit_is_refused_like_its_parts(tasks: ModuleType) -> None:
    operations = Operations(Settings(tasks=Path(str(tasks.__file__)).parent), Hooks())
    too_few: Any = expirebridge.Call(tasks.send)
    with pytest.raises(InvalidTask, match=r"^send\(to, \*, copy=False\): missing.*'to'"):
        first_call(operations.make_task(too_few, delay=60))


@pytest.mark.parametrize(
    "others", [{"args": [1]}, {"args": "72h"}, {"args": 60}, {"kwargs": {"copy": True}}]
)
def test_a_call_takes_no_further_arguments(tasks: ModuleType, others: dict[str, Any]) -> None:
    operations = Operations(Settings(tasks=Path(str(tasks.__file__)).parent), Hooks())
    call = expirebridge.Call(tasks.send, 42)
    with pytest.raises(InvalidTask, match=r"a Call has its arguments already.*delay='72h'"):
        first_call(operations.make_task(call, delay=60, **others))


# What comes back


def test_a_made_task_is_told_to_the_caller_and_to_the_hooks() -> None:
    events: list[Event] = []
    operations = Operations(Settings(), Hooks([events.append]))
    long = "x" * 600
    _, task = run(operations.make_task("mail.send", [long], 60, id="a", tags=["t"]))
    assert task == Task(
        id="a", func="mail.send", args=[long], tags=("t",), key=b"{tag}a:?mail.send?@",
        state=State.PENDING, due=from_ms(NOW + 60_000), created=from_ms(NOW),
        outcome=Outcome.CREATED,
    )  # fmt: skip
    assert events == [Making(id="a", func="mail.send"), Made(task=task)]


def test_a_rejected_task_raises_task_exists() -> None:
    with pytest.raises(TaskExists) as caught:
        run(OPERATIONS.make_task("mail.send", [], 60, id="a"), code=3, state=b"running")
    assert (caught.value.id, caught.value.state) == ("a", "running")


def test_a_kept_task_is_returned() -> None:
    _, task = run(OPERATIONS.make_task("mail.send", [], 60, id="a", if_exists="keep"), code=2)
    assert task.outcome is Outcome.KEPT


# In bulk


def test_many_tasks_are_sent_in_chunks_and_come_back_in_order() -> None:
    items = [{"func": "mail.send", "args": [n], "delay": 60} for n in range(500)]
    calls, made = run(OPERATIONS.make_tasks(items))
    assert [len(new_tasks(call)) for call in calls] == [CHUNK_TASKS] * 7 + [500 - 7 * CHUNK_TASKS]
    assert [task.args for task in made] == [[n] for n in range(500)]


def test_large_tasks_are_sent_in_chunks_of_a_mebibyte() -> None:
    items = [{"func": "mail.send", "args": ["x" * 60_000], "delay": 60} for _ in range(40)]
    calls, made = run(OPERATIONS.make_tasks(items))
    assert [len(new_tasks(call)) for call in calls] == [17, 17, 6]
    for call in calls:
        sent = [part for part in call.arguments if isinstance(part, bytes)]
        assert sum(map(len, sent)) <= CHUNK_BYTES
    assert len(made) == 40


def test_all_tasks_are_checked_before_the_first_is_sent() -> None:
    items: list[dict[str, Any]] = [{"func": "mail.send", "delay": 60} for _ in range(1200)]
    items[-1]["delay"] = -1
    with pytest.raises(InvalidTask, match=r"^task 1199: delay=-1"):
        first_call(OPERATIONS.make_tasks(items))


@each(("word", "ours"), [("countdown", "delay"), ("eta", "at")])
def test_a_word_of_celery_is_refused_with_ours(word: str, ours: str) -> None:
    wrong = f"unexpected keyword argument '{word}'; use {ours}="
    with pytest.raises(InvalidTask, match=f"^task 1: .*{wrong}"):
        first_call(OPERATIONS.make_tasks([{"func": "a.b", "delay": 1}, {"func": "a.b", word: 60}]))


def test_every_task_of_a_given_id_is_sent_with_a_nonce_of_its_call() -> None:
    items = [{"func": "mail.send", "delay": 60, "id": f"{n}"} for n in range(CHUNK_TASKS + 1)]
    calls, _ = run(OPERATIONS.make_tasks(items))
    assert len({call.arguments[0] for call in calls}) == 2


@each(
    ("ids", "script"),
    [([None], "make_drawn"), ([None] * 2, "make_drawn_many"), ([None, "a"], "make")],
)
def test_the_short_scripts_make_only_tasks_whose_ids_were_drawn(
    ids: list[str | None], script: str
) -> None:
    items = [{"func": "mail.send", "delay": 60, "id": id} for id in ids]
    [call], _ = run(OPERATIONS.make_tasks(items))
    assert call.name == script


def test_no_tasks_send_nothing() -> None:
    assert run(OPERATIONS.make_tasks([])) == ([], [])


def test_rejected_tasks_do_not_keep_the_others_from_being_made() -> None:
    items = ({"func": "mail.send", "delay": 60, "id": id} for id in "ab")
    _, made = run(OPERATIONS.make_tasks(items), code=3)
    assert [task.outcome for task in made] == [Outcome.REJECTED] * 2


@each(
    ("folder", "func", "meant"),
    [
        ("tasks", "tasks.mail.send", "mail.send"),
        ("/srv/shop/tasks", "tasks.mail.send", "mail.send"),
        ("/srv/shop/tasks", "shop.tasks.mail.send", "mail.send"),
        ("tasks", "tasks.shop.mail.send", "shop/mail.send"),
        ("tasks", "shop.mail.send", "shop/mail.send"),
    ],
)
def test_a_name_as_python_imports_it_is_advised(folder: str, func: str, meant: str) -> None:
    operations = Operations(Settings(tasks=Path(folder)), Hooks())
    with pytest.raises(InvalidTask, match=rf"^func='{func}': .*\(did you mean '{meant}'\?\)$"):
        first_call(operations.make_task(func, [1], 5))


@each("func", ["tasks.", "tasks.größe.send", "send", "..", ""])
def test_a_name_that_can_mean_nothing_is_refused_without_advice(func: str) -> None:
    with pytest.raises(InvalidTask, match=r"in ASCII identifiers$"):
        new_task(func)


def send(number: int) -> None:
    """What a program may call by mistake, instead of giving it."""


async def async_send(number: int) -> None:
    """The same."""


@pytest.mark.filterwarnings("error")
def test_a_call_in_place_of_a_function_is_advised() -> None:
    advice = r"without parentheses: make_task\(send, \[17\], \.\.\.\)"
    with pytest.raises(InvalidTask, match=rf"^func=None: .*{advice}"):
        new_task(send(1))  # type: ignore[func-returns-value]
    with pytest.raises(InvalidTask, match=rf"^func=async_send\(\.\.\.\): .*{advice}"):
        new_task(async_send(1))
    gc.collect()  # of a coroutine that was not closed, this warns

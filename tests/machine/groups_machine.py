"""A group in any order of operations, beside a model of its members and its numbers."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from expirebridge import Bridge, Outcome, State, TaskExists, Then
from expirebridge.connection import clients
from expirebridge.groups import calls as groups
from expirebridge.groups.calls import Cancelling
from expirebridge.groups.names import OnFailed
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, producing, reconciling
from expirebridge.task.calls.call import Command, OfId, script
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.producing import MakeReply, Obstacle
from expirebridge.task.calls.reconciling import EventKind
from tests.kit.dying_producer import Died, dying_after
from tests.kit.snapshot import fields_of, read_keys, scores_of
from tests.kit.steps import PREFIX, new, reschedule
from tests.machine.world import age

MINUTE, HOUR, DAY = 60, 3600, 86400
SETTINGS = Settings(lease=150, keep_succeeded=600, keep_failed=1200)
GROUP, FOLLOW_UP, ALONE = "g", "g@then", "alone"
THEN = Then("orders.close", [7])
PART = 2
"""Members that a call to cancel the group looks at."""

numbers = st.integers(0, 7)
delays = st.sampled_from([0, 0, MINUTE])
policies = st.sampled_from(["reject", "keep", "replace", "extend"])
outcomes = st.sampled_from(
    ["succeeded", "succeeded", "failed", "failed", "retry", "snoozed", "released", "unknown"]
)
OPERATIONS = ("cancel", "pause", "resume", "reschedule", "run_now", "purge")


def member(number: int) -> str:
    return f"{GROUP}@g{number}"


@dataclass
class Member:
    """A member, as the numbers of its group count it."""

    counts_as: str = "open"
    """`open`, `waited for` (it failed, and is to run again), or the state in which it ended."""
    failed: bool = False
    """Whether it was in the state `failed` after the last step."""
    places: list[State] = field(default_factory=list)
    """The sets in which it was then: two, if its record was lost and it was made once more."""


@dataclass
class Model:
    """The group: what its members are, and whether it is closed, cancelled and ended."""

    on_failed: OnFailed
    asked: int
    next: int
    members: dict[int, Member] = field(default_factory=dict)
    closed: bool = False
    stopped: bool = False
    ended: bool = False
    cancelled_to: int = 0

    def add(self, number: int) -> None:
        """A member was made, or was there."""
        self.members.setdefault(number, Member())
        self.next = max(self.next, number + 1)

    def lacking(self) -> int:
        """How many of the members that make_group was to make are missing, while it is open."""
        return 0 if self.closed else len({*range(self.asked)} - self.members.keys())

    def has_ended(self, number: int) -> bool:
        return number in self.members and self.members[number].counts_as in set(State)

    def refuses(self, number: int) -> bool:
        return number not in self.members and self.closed

    def give_up(self, number: int) -> None:
        """A failed member is not waited for any longer."""
        if number in self.members and self.members[number].counts_as == "waited for":
            self.members[number].counts_as = "cancelled"

    def observe(self, found: "Found") -> None:
        """Let members be what their tasks are; the group follows."""
        for number, one in self.members.items():
            state, places = found.state(member(number)), one.places
            one.places = found.places(member(number))
            if state is None:
                # That its record is lost was noticed in a place of it, which is gone then.
                if one.counts_as == "open" and one.places != places:
                    one.counts_as = "cancelled"
                continue
            if state == State.FAILED and not one.failed:
                self._fail(one)
            elif state != State.FAILED:
                one.counts_as = state if State(state).finished else "open"
            one.failed = state == State.FAILED
        if self.closed and not self.counted()["left"]:
            self.ended = True

    def _fail(self, one: Member) -> None:
        one.counts_as = "failed"
        if self.on_failed == "wait":
            one.counts_as = "cancelled" if self.stopped else "waited for"
        elif self.on_failed == "cancel" and not self.ended:
            self.stopped = self.closed = True

    def counted(self) -> dict[str, int]:
        those = [one.counts_as for one in self.members.values()]
        return {
            "left": those.count("open") + those.count("waited for"),
            "succeeded": those.count("succeeded"),
            "failed": those.count("failed") + those.count("waited for"),
            "cancelled": those.count("cancelled"),
        }


class Found:
    """What a database holds of tasks and the group, read at one moment."""

    def __init__(self, client: redis.Redis) -> None:
        self.now, self.keys = read_keys(client)

    def _content(self, name: str) -> Any:
        return self.keys.get(f"{PREFIX}:{name}", ("", []))[1]

    def state(self, id: str) -> str | None:
        record = fields_of(self._content(f"task:{id}"))
        return record.get("state", "pending") if record else None

    def places(self, id: str) -> list[State]:
        return [state for state in State if id in scores_of(self._content(state))]

    def group(self) -> dict[str, str]:
        return fields_of(self._content(f"group:{GROUP}"))

    def is_stopping(self) -> bool:
        return GROUP in scores_of(self._content("stopping"))

    def ids(self, *states: State) -> list[str]:
        return [id for state in states for id in scores_of(self._content(state))]


class GroupsMachine(RuleBasedStateMachine):
    """One database with a group, or without; it may be forgotten, and made again."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(self.url)
        self.client.flushall()
        self.store = Store(clients.producer_client(self.url), prefix=PREFIX)
        self.bridge = Bridge(self.url)
        self.model: Model | None = None
        self.runs: list[tuple[str, str]] = []
        self.tokens = 0
        self.last_make: tuple[int, Command[list[MakeReply]]] | None = None
        self.on_failed: OnFailed = "wait"
        self.stored: dict[str, str] = {}
        """The fields of the group after the last step."""
        self.follow_up: str | None = None
        """Its state after the last step."""

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self._run_to_the_end()
        finally:
            self.bridge.close()
            self.store.close()
            self.client.close()

    # What is always true

    def observe(self, *, of_follow_up: bool = False) -> Found:
        """Compare the database with the model after each call.

        `of_follow_up`: the call was about the follow-up itself.
        """
        found, before, model = Found(self.client), self.follow_up, self.model
        self.follow_up = found.state(FOLLOW_UP)
        stored = found.group()
        if model is None:
            assert not stored
            return found
        was_stopped, had_ended = "stopped" in self.stored, model.ended
        self.stored = stored
        model.observe(found)
        assert {name: int(stored[name]) for name in model.counted()} == model.counted()
        assert int(stored["next"]) == model.next
        assert ("closed" in stored, "stopped" in stored, "ended" in stored) == (
            model.closed, model.stopped, model.ended,
        )  # fmt: skip
        if model.stopped and not model.ended:
            assert found.is_stopping() == (model.cancelled_to < model.next)
        if not of_follow_up:
            self._check_follow_up(
                before,
                is_stopped=model.stopped and not was_stopped,
                has_ended=model.ended and not had_ended and not model.stopped,
            )
        return found

    def _check_follow_up(self, before: str | None, *, is_stopped: bool, has_ended: bool) -> None:
        """It is resumed once, when the group has ended, and by nothing else."""
        after = self.follow_up
        if before == State.PAUSED:
            expected = State.PAUSED
            if is_stopped:
                expected = State.CANCELLED
            elif has_ended:
                expected = State.PENDING
            assert after == expected
        else:
            assert after != State.PAUSED
            if before is None or State(before).finished:
                assert after in {before, None}

    # Producers

    @initialize(
        on_failed=st.sampled_from(["wait", "run", "cancel"]),
        count=st.integers(0, 4),
        made=st.integers(0, 4),
    )
    def begin(self, on_failed: OnFailed, count: int, made: int) -> None:
        self.on_failed = on_failed
        self.count = count
        self.make_group(made, close=False)

    @rule(made=st.integers(0, 5), close=st.booleans())
    def make_group(self, made: int, close: bool) -> None:
        """Make it, or what is missing of it; the producer dies after so many members."""
        items = [{"func": "mail.send", "args": [one], "delay": 0} for one in range(self.count)]
        begun, count = self.model, min(made, self.count)
        if begun is None and self.follow_up not in {None, *FINISHED}:
            with suppress(TaskExists):
                self.bridge.make_group(GROUP, items, then=THEN, on_failed=self.on_failed)
                raise AssertionError("its follow-up's id was taken")
            self.observe()
            return
        with dying_after(made), suppress(Died):
            self.bridge.make_group(GROUP, items, then=THEN, on_failed=self.on_failed, close=close)
        model = self.model = begun or Model(self.on_failed, self.count, self.count)
        if not model.closed:
            for number in range(count):
                model.add(number)
            model.closed = close and count == self.count
        if begun is not None:
            self.observe()
            return
        self.stored = {}
        self.observe(of_follow_up=True)
        assert self.follow_up == (State.PENDING if model.ended else State.PAUSED)

    @rule(count=st.integers(1, 2), delay=delays)
    def add(self, count: int, delay: int) -> None:
        model = self.model
        if model is None or model.closed:
            first = self.store.run(groups.reserve_members(GROUP, count))
            missing = Obstacle.NO_GROUP
            assert first is (missing if model is None else Obstacle.GROUP_CLOSED)
            return
        items = [{"func": "mail.send", "args": [1], "delay": delay}] * count
        made = self.bridge.make_tasks(map(dict, items), group=GROUP)
        numbers = range(model.next, model.next + count)
        assert [task.id for task in made] == [member(number) for number in numbers]
        for number in numbers:
            model.add(number)
        self.observe()

    @rule(number=numbers, delay=delays, arg=st.integers(1, 2), if_exists=policies)
    def make(self, number: int, delay: int, arg: int, if_exists: str) -> None:
        call = b"mail.send?[%d]" % arg
        item = new(member(number), delay * 1000, call=call, if_exists=if_exists)
        command = producing.make([item])
        had_ended = self.model is not None and self.model.has_ended(number)
        reply = self._make(number, command)
        if reply.outcome is Outcome.CREATED:
            self.last_make = number, command
        if had_ended:
            kept = Outcome.KEPT if if_exists == "keep" else Outcome.REJECTED
            assert reply.outcome is kept

    @precondition(lambda self: self.last_make)
    @rule(has_run=st.booleans())
    def make_once_more(self, has_run: bool) -> None:
        """The reply was lost, and the call is sent again, maybe much later."""
        assert self.last_make is not None
        if has_run:
            self.run_all("succeeded")
        number, command = self.last_make
        known = self._record(member(number)).get("nonce", "")
        reply = self._make(number, command)
        if str(command.arguments[0]) in known:
            assert reply.outcome is Outcome.CREATED

    def _make(self, number: int, command: Command[list[MakeReply]]) -> MakeReply:
        model = self.model
        [reply] = self.store.run(command)
        if model is None:
            assert reply.obstacle is Obstacle.NO_GROUP
        elif model.refuses(number):
            assert reply.obstacle is Obstacle.GROUP_CLOSED
        else:
            assert reply.obstacle in {None, Obstacle.EXISTS, Obstacle.DIFFERS}
            if reply.outcome is not Outcome.REJECTED:
                model.add(number)
        self.observe()
        return reply

    @rule()
    def close_group(self) -> None:
        model = self.model
        lacking = model.lacking() if model is not None else None
        assert self.store.run(groups.close_group(GROUP)) == lacking
        if model is not None and not lacking:
            model.closed = True
        self.observe()

    @rule()
    def cancel_some(self) -> None:
        """Cancel a part of the group: who does may die before the next."""
        model = self.model
        call = script("cancel_group", GROUP, 600_000, PART, read=Cancelling, route=OfId(GROUP))
        reply = self.store.run(call)
        if model is None:
            assert reply is Cancelling.NO_GROUP
        elif model.ended:
            assert reply is (Cancelling.ALL if model.stopped else Cancelling.ENDED)
        else:
            model.stopped = model.closed = True
            begin = model.cancelled_to
            model.cancelled_to = min(begin + PART, model.next)
            assert reply is (Cancelling.MORE if model.cancelled_to < model.next else Cancelling.ALL)
            found = Found(self.client)
            for number in range(begin, model.cancelled_to):
                one = model.members.get(number)
                if one and one.counts_as == "open" and found.state(member(number)) is None:
                    one.counts_as = "cancelled"  # its record is lost
            self._check_cancelled(range(begin, model.cancelled_to))
        self.observe()

    def _check_cancelled(self, part: Sequence[int]) -> None:
        assert self.model is not None
        found = Found(self.client)
        for number in part:
            self.model.give_up(number)
            state = found.state(member(number))
            if number in self.model.members and state not in {None, *FINISHED}:
                assert state == State.RUNNING
                assert self._record(member(number))["cancel"] == "1"

    @rule(number=numbers, operation=st.sampled_from(OPERATIONS))
    def change_member(self, number: int, operation: str) -> None:
        known = sorted(self.model.members) if self.model is not None else ()
        if known:
            number = known[number % len(known)]
        if operation == "purge":
            self._purge(number)
            return
        self._change(member(number), operation)
        self.observe()

    @precondition(lambda self: self.waited_for())
    @rule(pick=numbers)
    def purge_failed(self, pick: int) -> None:
        """A failed member that the group waits for is given up."""
        those = self.waited_for()
        self._purge(those[pick % len(those)])

    def _purge(self, number: int) -> None:
        """Give a failed member up. One that is forgotten is not found: it is waited for."""
        is_there = bool(self._record(member(number)))
        self._change(member(number), "purge")
        if is_there and self.model is not None:
            self.model.give_up(number)
        self.observe()

    def waited_for(self) -> list[int]:
        """The failed members that the group waits for."""
        members = self.model.members if self.model is not None else {}
        return [number for number in members if members[number].counts_as == "waited for"]

    @rule(operation=st.sampled_from(OPERATIONS))
    def change_follow_up(self, operation: str) -> None:
        self._change(FOLLOW_UP, operation)
        self.observe(of_follow_up=True)

    def _record(self, id: str) -> dict[str, str]:
        return fields_of(Found(self.client).keys.get(f"{PREFIX}:task:{id}", ("", []))[1])

    def _change(self, id: str, operation: str) -> None:
        operations: dict[str, Callable[[], object]] = {
            "cancel": lambda: self.store.run(producing.cancel([id], keep=600)),
            "pause": lambda: self.store.run(producing.pause([id])),
            "resume": lambda: self.store.run(producing.resume([id])),
            "reschedule": lambda: reschedule(self.store, id, 0),
            "run_now": lambda: self.store.run(producing.run_now(id)),
            "purge": lambda: self.store.run(producing.purge([id])),
        }
        operations[operation]()

    # Other clients, with plain commands

    @rule(number=numbers)
    def delete_record(self, number: int) -> None:
        self.client.delete(f"{PREFIX}:task:{member(number)}")
        self.observe()

    @rule(number=numbers, is_set=st.booleans())
    def edit_key(self, number: int, is_set: bool) -> None:
        """A member's key is deleted, or set once more."""
        id = member(number)
        record = self._record(id)
        if not record:
            return
        name = f"{id}:?{record['call']}".encode()
        if is_set:
            self.client.set(name, "", px=MINUTE * 1000)
        else:
            self.client.delete(name)
        heard = EventKind.LIVE if is_set else EventKind.DELETED
        hint = reconciling.KeyEvent(name, id, record["call"].encode(), heard)
        self.store.run(reconciling.adopt([hint], SETTINGS))
        self.observe()

    # Listeners

    @rule(places=st.sampled_from([1, 2, 100]))
    def claim(self, places: int) -> None:
        self.tokens += 1
        token = f"token-{self.tokens}"
        claimed = self.store.run(claiming.claim(token, SETTINGS, places=places, idle=True))
        self.runs += [(task.id, token) for task in claimed.tasks]
        self.observe()

    @precondition(lambda self: self.runs)
    @rule(back=st.integers(0, 4), outcome=outcomes, delay=delays)
    def settle(self, back: int, outcome: str, delay: int) -> None:
        id, token = self.runs.pop(-1 - back % len(self.runs))
        self.store.run(claiming.settle([Settlement(id, token, outcome, delay)], SETTINGS))
        self.observe()

    @precondition(lambda self: self.runs)
    @rule(some=st.lists(outcomes, min_size=1, max_size=5))
    def settle_some(self, some: list[str]) -> None:
        """Several attempts end at once; a reply that was lost is asked for once more."""
        over, self.runs = self.runs[: len(some)], self.runs[len(some) :]
        call = claiming.settle(
            [Settlement(*run, outcome) for run, outcome in zip(over, some, strict=False)], SETTINGS
        )
        answer = self.store.run(call)
        self.observe()
        assert self.store.run(call) == answer
        self.observe()

    @precondition(lambda self: self.runs)
    @rule(number=numbers, if_exists=st.sampled_from(["reject", "keep", "replace"]))
    def settle_then(self, number: int, if_exists: str) -> None:
        """A handler returns a member of the group as its follow-up."""
        (id, token), model = self.runs.pop(), self.model
        then = new(member(number), 0, if_exists=if_exists)
        call = claiming.settle_then([Settlement(id, token, "succeeded", then=then)], SETTINGS)
        [settled] = self.store.run(call)
        if settled.code is Obstacle.NO_GROUP:
            assert model is None
        if settled.code is Obstacle.GROUP_CLOSED:
            assert model is not None
            assert model.refuses(number)
        if settled.code is Settled.DONE:
            assert model is not None
            assert not model.refuses(number)
            model.add(number)
        if settled.code not in {Settled.DONE, Settled.REFUSED}:
            self.runs.append((id, token))
        self.observe(of_follow_up=id == FOLLOW_UP)

    @rule(delay=delays)
    def make_alone(self, delay: int) -> None:
        """A task that is no member; its handler may return one."""
        self.store.run(producing.make([new(ALONE, delay * 1000)]))
        self.observe()

    @rule(outcome=st.sampled_from(["succeeded", "failed"]))
    def run_all(self, outcome: str) -> None:
        """All that is due runs, and ends in this way."""
        self.claim(100)
        while self.runs:
            self.settle(0, outcome, 0)

    @precondition(lambda self: self.model is not None and self.model.ended)
    @rule(number=numbers, is_paused=st.booleans())
    def run_again(self, number: int, is_paused: bool) -> None:
        """After the end a member runs once more, while the follow-up may be paused again."""
        if is_paused:
            self.change_follow_up("run_now")
            self.change_follow_up("pause")
        self.change_member(number, "run_now")
        self.run_all("succeeded")

    @precondition(lambda self: self.model is not None and self.model.ended)
    @rule(count=st.integers(0, 3))
    def start_over(self, count: int) -> None:
        """The group is forgotten, and another of its name is made."""
        self.pass_time(2 * DAY)
        self.sweep()
        self.make_group(count, close=False)

    @rule(number=numbers)
    def let_lapse(self, number: int) -> None:
        self._beat()
        self.client.zadd(f"{PREFIX}:running", {member(number): 0}, xx=True)
        self.sweep()

    @rule()
    def sweep(self) -> None:
        while True:
            swept = self.store.run(reconciling.sweep(SETTINGS))
            if self.model is not None and not Found(self.client).group():
                assert self.model.ended, "a group was forgotten that had not ended"
                self.model = None
            self.observe()
            if not swept.more:
                return

    @rule(seconds=st.sampled_from([MINUTE, MINUTE, HOUR, 2 * DAY]))
    def pass_time(self, seconds: int) -> None:
        age(self.client, seconds)
        self._beat()
        self.observe()

    def _beat(self) -> None:
        self.store.run(claiming.heartbeat("one", SETTINGS.lease, self.runs, code="aa"))

    # The end

    def _run_to_the_end(self) -> None:
        """Once all is asked for, a group ends, and is forgotten without a trace."""
        if self.model is not None:
            self.make_group(self.count, close=True)
        self.close_group()
        for _ in range(20):
            self._beat()
            self.sweep()
            if Found(self.client).is_stopping():
                self.cancel_some()
            found = Found(self.client)
            for number in self.waited_for():
                self.make(number, 0, 1, "keep")
                self._change(member(number), "run_now")
                self.observe()
            for id in found.ids(State.PAUSED):
                if id != FOLLOW_UP:
                    self.store.run(producing.resume([id]))
            self.pass_time(MINUTE)
            self.claim(100)
            self.runs = []
            for id in Found(self.client).ids(State.RUNNING):
                record = self._record(id)
                if "token" in record:
                    self.runs.append((id, record["token"]))
            while self.runs:
                self.settle(0, "succeeded", 0)
            if self.model is None or self.model.ended:
                break
        else:
            raise AssertionError(f"it never ends: {self.model}")
        for _ in range(3):
            self.pass_time(2 * DAY)
            self.sweep()
            self.cancel_some()
        left = [name for name in Found(self.client).keys if "group" in name or "stopping" in name]
        assert left == []


FINISHED = {State.SUCCEEDED, State.FAILED, State.CANCELLED}


def machine_for(url: str) -> type[GroupsMachine]:
    """The machine on one server."""
    return type("GroupsMachineOn", (GroupsMachine,), {"url": url})

"""The calls of producers: make tasks and steer them."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from expirebridge.store.record_values import split_call, state_of
from expirebridge.task.calls.call import (
    Argument,
    BatchSpec,
    ByItem,
    Command,
    OfId,
    When,
    by_id,
    milliseconds,
    new_nonce,
    rows_of,
    script,
)
from expirebridge.task.keys import key_name
from expirebridge.task.task import Change, Outcome, State

# Making

IfExists = Literal["reject", "keep", "replace", "extend"]
"""What is done if the id belongs to an unfinished task: see make.lua."""


_NOTED: Final = frozenset({"on_signal", "urgent"})
"""Fields that may begin the use of a feature, which only make.lua notes. Where a signal may have
changed the task since, its id is not enough to recognize a resend, either."""


class NewTask(NamedTuple):
    """A task to be made, checked and encoded."""

    id: str
    has_random_id: bool
    """True if the id was drawn at random for this call, so that no other task can have it."""
    if_exists: str
    """An `IfExists`."""
    call: bytes
    when: When
    fields: dict[str, Argument]
    """The other fields of its record."""

    @property
    def funcs(self) -> tuple[str, ...]:
        """The functions that it may run: the second one if it is signalled."""
        first, second = split_call(self.call)[0], self.on_signal
        return (first,) if second is None else (first, second)

    @property
    def on_signal(self) -> str | None:
        """The function that it runs if it is signalled."""
        second = self.fields.get("on_signal")
        return None if second is None else str(second)

    @property
    def args(self) -> bytes:
        """Its arguments as the record holds them, there or in the call."""
        args = self.fields.get("args") or self.call.partition(b"?")[2]
        return args if isinstance(args, bytes) else str(args).encode()

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for make.lua."""
        id, has_random_id, if_exists, call, (ms, relative), fields = self
        is_drawn = has_random_id and _NOTED.isdisjoint(fields)
        pairs = [item for pair in fields.items() for item in pair] if fields else ()
        return (
            id, "1" if is_drawn else "0", if_exists, call, "in" if relative else "at", ms,
            len(fields), *pairs,
        )  # fmt: skip


class Obstacle(Enum):
    """Why a task was not made; the values are the codes of make.lua."""

    EXISTS = 3  # an unfinished task has its id
    DIFFERS = 6  # the same, and that task, which was to be extended, has another call
    NO_GROUP = 7  # it would be a member of a group that is not there
    GROUP_CLOSED = 8  # the same, of a group that takes no more
    IN_LEDGER = 9  # its id is that of a ledger's task


class MakeReply(NamedTuple):
    """The reply for one new task; about the older one, if that was kept."""

    outcome: Outcome
    now: int
    """The server's time, in ms."""
    due: int
    key: bytes
    call: bytes
    args: bytes
    state: State
    obstacle: Obstacle | None = None
    """Why it was rejected."""


_OUTCOMES = {1: Outcome.CREATED, 2: Outcome.KEPT, 4: Outcome.REPLACED, 5: Outcome.EXTENDED}
"""By the codes of make.lua; the others are obstacles."""


def make(tasks: Sequence[NewTask], *, bulk: bool = False) -> Command[list[MakeReply]]:
    """Make tasks; those whose ids are taken are kept or rejected as they ask.

    Those of one partition are made all or nothing. A single one may be sent together with others.
    `bulk`: raise PartlyDone, with what was made, if partitions cannot be asked.
    """
    items = [argument for task in tasks for argument in task.encode()]
    random_ids = all(map(_HAS_RANDOM_ID, tasks))
    route = ByItem(tasks, _ID_OF_NEW, make, random_ids and not bulk, bulk)
    batching = BatchSpec(tasks[0].id, shared=1, width=_ROW) if len(tasks) == 1 else None
    if not random_ids or not all(_NOTED.isdisjoint(task.fields) for task in tasks):
        return script(
            "make", new_nonce(), *items, read=_read_replies, route=route, batching=batching
        )
    if batching is None:
        return script("make_drawn_many", "", *items, read=partial(_read_many, tasks), route=route)
    return script("make_drawn", "", *items, read=_read_replies, route=route, batching=batching)


_ROW = 3
"""How many values of make.lua's reply are for each task."""


_ID_OF_NEW = attrgetter("id")
_HAS_RANDOM_ID = attrgetter("has_random_id")


def _read_replies(reply: list[Any]) -> list[MakeReply]:
    now = reply[0]
    return [_reply(now, *row) for row in rows_of(reply[1:], _ROW)]


def _reply(now: int, due: int, key: bytes, rest: list[Any] | None) -> MakeReply:
    if rest is None:  # nearly always: the name of the key ends with the call
        call = key.partition(b"?")[2]
        args = call.partition(b"?")[2]
        return MakeReply(Outcome.CREATED, now, due, key, call, args, State.PENDING)
    code, call, state, args = rest
    return MakeReply(
        outcome=_OUTCOMES.get(code, Outcome.REJECTED),
        now=now,
        due=due,
        key=key,
        call=call,
        args=args or split_call(call)[1],
        state=state_of(state),
        obstacle=None if code in _OUTCOMES else Obstacle(code),
    )


def _read_many(tasks: Sequence[NewTask], reply: list[Any]) -> list[MakeReply]:
    if len(reply) > _ALL_MADE:  # it was sent before
        return _read_replies(reply)
    now, hash_tag = reply
    return [_made(task, now, hash_tag) for task in tasks]


_ALL_MADE = 2
"""How many values make_drawn_many.lua replies if all tasks were made as they were asked for."""


def _made(task: NewTask, now: int, hash_tag: bytes) -> MakeReply:
    id, _, _, call, (ms, relative), _ = task
    return MakeReply(
        Outcome.CREATED,
        now,
        due=now + ms if relative else ms,
        key=key_name(hash_tag, id, call),
        call=call,
        args=task.args,
        state=State.PENDING,
    )


# Steering


def cancel(ids: Sequence[str], *, keep: float) -> Command[list[Change]]:
    """Cancel tasks; they can be looked up for `keep` seconds."""
    return script(
        "cancel", new_nonce(), milliseconds(keep), *ids, read=_all_changed(Change.CANCELLED),
        route=by_id(ids, partial(cancel, keep=keep)),
    )  # fmt: skip


def put_off(ids: Sequence[str], by: float) -> Command[list[Change]]:
    """Put tasks off by so many seconds, each from when it is due."""
    return script(
        "put_off", new_nonce(), milliseconds(by), *ids, read=_all_changed(Change.MOVED),
        route=by_id(ids, partial(put_off, by=by)),
    )  # fmt: skip


def reschedule(id: str, when: When) -> Command[Change]:
    """Move a task's due time."""
    return script(
        "reschedule", new_nonce(), id, *when.encode(), read=_changed(Change.MOVED), route=OfId(id)
    )


def beat(id: str) -> Command[Change]:
    """Put a watched task off by its time to live."""
    return script("beat", id, read=_changed(Change.MOVED), route=OfId(id))


def pause(ids: Sequence[str]) -> Command[list[Change]]:
    """Pause tasks that wait."""
    return script(
        "pause", new_nonce(), *ids, read=_all_changed(Change.PAUSED), route=by_id(ids, pause)
    )


def resume(ids: Sequence[str], *, spare_follow_ups: bool = False) -> Command[list[Change]]:
    """Let paused tasks go on; unless follow-ups whose groups have not ended are to be spared."""
    return script(
        "resume", new_nonce(), "1" if spare_follow_ups else "", *ids,
        read=_all_changed(Change.RESUMED),
        route=by_id(ids, partial(resume, spare_follow_ups=spare_follow_ups)),
    )  # fmt: skip


def run_now(id: str) -> Command[Change]:
    """Make a task due now; a finished one starts over."""
    return script("run_now", new_nonce(), id, read=_changed(Change.DUE_NOW), route=OfId(id))


def purge(ids: Sequence[str]) -> Command[list[Change]]:
    """End the time for which failed tasks are kept."""
    codes = {1: Change.FORGOTTEN, 4: Change.NOT_FAILED, 5: Change.NOT_FOUND}
    return script(
        "purge", *ids, read=lambda reply: [codes[code] for code in reply], route=by_id(ids, purge)
    )


_DONE = 1
_CHANGE_CODES = {
    2: Change.REARMED,
    3: Change.RUNNING,
    4: Change.FINISHED,
    5: Change.NOT_FOUND,
    6: Change.NOT_WATCHED,
    7: Change.ELSEWHERE,
    8: Change.WAITING,
    9: Change.PAUSED,
}


def change_of(code: int, done: Change) -> Change:
    """The change that a code of a script stands for."""
    return done if code == _DONE else _CHANGE_CODES[code]


def _changed(done: Change) -> Callable[[int], Change]:
    return lambda code: change_of(code, done)


def _all_changed(done: Change) -> Callable[[list[int]], list[Change]]:
    return lambda codes: [change_of(code, done) for code in codes]

"""What a page looks for, and what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from expirebridge.errors import InvalidTask
from expirebridge.model import keys
from expirebridge.model.task import LeftOut, State, Task, to_ms
from expirebridge.settings import Settings
from expirebridge.store.commands import CountsBefore

MAX_SOUGHT = 100_000
"""Ids that one page looks at, at most, for those that begin as was asked for."""
SOUGHT_AT_ONCE = 2_000
"""Ids that one request looks at, which is quick: it reads no records."""
_WAITS = ("", "first", "retry")
_WAITING = (State.PENDING, State.PAUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What to look for. Times are those at which tasks are due or, once finished, ended."""

    state: State | None = State.PENDING
    id: str = ""
    """What the id begins with."""
    func: str = ""
    tag: str = ""
    wait: str = ""
    """`first` or `retry`: which attempt a task waits for. Empty: either, and tasks that do not."""
    after: datetime | None = None
    before: datetime | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "Search":
        """Read a query, or a form. Raises InvalidTask for what cannot be."""
        id = query.get("id", "").strip()
        if id:
            keys.check_id(id)
        func, tag = query.get("func", "").strip(), query.get("tag", "").strip()
        if func:
            keys.check_func(func)
        if tag:
            keys.check_tags([tag])
        wait = query.get("wait", "")
        if wait not in _WAITS:
            raise InvalidTask(f"wait={wait!r}: first or retry")
        return cls(
            state=_state(query.get("state", ""), anywhere=bool(id or tag)),
            wait=wait,
            id=id,
            func=func,
            tag=tag,
            after=_moment(query.get("after", "")),
            before=_moment(query.get("before", "")),
        )

    def fields(self) -> dict[str, str]:
        """The query that it is read from."""
        given = {
            "state": self.state or "any",
            "id": self.id,
            "func": self.func,
            "tag": self.tag,
            "wait": self.wait if self.can_wait else "",
            "after": _written(self.after),
            "before": _written(self.before),
        }
        return {name: value for name, value in given.items() if value}

    def query(self, **more: object) -> str:
        """The same, encoded for a link."""
        return urlencode(self.fields() | {name: str(value) for name, value in more.items()})

    def within(self, state: State | None) -> "Search":
        """The same in another state."""
        return replace(self, state=state)

    @property
    def can_wait(self) -> bool:
        """Whether tasks in its state can wait for an attempt."""
        return self.state in {None, *_WAITING}

    @property
    def narrowed(self) -> bool:
        """Whether tasks in its state may not match it."""
        return len(self.fields()) > 1

    def matches(self, task: Task) -> bool:
        """Whether it is one that is looked for; its state and tag are seen to where it is read."""
        if not task.id.startswith(self.id) or (self.func and task.func != self.func):
            return False
        if self.wait and self.can_wait:
            waits_for = "retry" if task.attempt else "first"
            if task.state not in _WAITING or waits_for != self.wait:
                return False
        moment = (task.ended or task.due) if task.state.finished else task.due
        early = self.after is not None and moment < self.after
        late = self.before is not None and moment >= self.before
        return not early and not late


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A page of what was found, and how much was looked at for it."""

    tasks: list[Task]
    examined: int
    first: int | None
    """The rank at which the page begins, counted from 0; None where there is no order (a tag)."""
    cursor: str
    """Where the next page begins; "0" if there is none."""
    unseen: tuple[State, ...] = ()
    """States of which not all ids were looked at; each can be looked at by itself."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked."""


def lean(task: Task) -> Task:
    """The task without its arguments."""
    return replace(task, args=(), kwargs={}, key=b"", result=None)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The scores between which a state's tasks of some times stand.

    A score may be older than the timer of its task that was put off, so each task's own time is
    looked at as well.
    """

    state: State
    scores: Sequence[int | None] = (None, None)

    @classmethod
    def of(cls, search: Search, settings: Settings) -> "Bounds":
        """Those of a search without a tag."""
        state = search.state or State.PENDING
        keep = 0.0
        if state.finished:
            keep = settings.keep_failed if state is State.FAILED else settings.keep_succeeded
        # What is paused, or runs, is looked at at other times than its own: those are few, or all
        # seen.
        elif state is not State.PENDING:
            return cls(state)
        times = (search.after, search.before)
        return cls(
            state,
            [to_ms(at) + round(keep * 1000) if at is not None else None for at in times],
        )

    @property
    def given(self) -> list[int]:
        """The scores to count the tasks before."""
        return [score for score in self.scores if score is not None]

    def ranks(self, counts: CountsBefore) -> tuple[int, int]:
        """The ranks between which they stand, by these counts."""
        ranks = iter(counts.before)
        after = next(ranks) if self.scores[0] is not None else 0
        before = next(ranks) if self.scores[1] is not None else counts.total
        # What has finished is listed latest first.
        if self.state.finished:
            return counts.total - before, counts.total - after
        return after, before


def _state(text: str, *, anywhere: bool) -> State | None:
    """The state that is asked for; what has an id's beginning or a tag can be found in any."""
    if text in {"", "any"}:
        return None if anywhere else State.PENDING
    try:
        return State(text)
    except ValueError:
        raise InvalidTask(f"state={text!r}: one of {', '.join(State)}") from None


def _moment(text: str) -> datetime | None:
    """A time as a form gives it: without a zone, which is UTC then."""
    if not text.strip():
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidTask(f"time {text!r}: write it as 2031-05-01T08:00") from None


def _written(moment: datetime | None) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") if moment else ""

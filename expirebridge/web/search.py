"""Finds tasks for a page: by state, id, function, tag and time, and never by a walk over all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from expirebridge import wire
from expirebridge.errors import InvalidTask
from expirebridge.operations import Operations
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.calls import BEGINNING, Call, Steps
from expirebridge.task import State, Task, to_ms

PAGE = 50
"""Rows of a page."""
MAX_SOUGHT = 100_000
"""Ids that one page looks at, at most, for those that begin as was asked for."""
MAX_EXAMINED = 2_000
"""Tasks that one page looks at, at most, however few of them match."""
BULK_LIMIT = 10_000
"""Tasks that one action on a filter looks at, at most."""

_CHUNK = 200
_SOUGHT_AT_ONCE = 2_000
"""Ids that one request looks at, which is quick: it reads no records."""
_WAITS = ("", "first", "retry")
_WAITING = (State.PENDING, State.PAUSED)
_MAX_CURSOR = 2**64
_LAST_RANK = 2**52


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
            wire.check_id(id)
        func, tag = query.get("func", "").strip(), query.get("tag", "").strip()
        if func:
            wire.check_func(func)
        if tag:
            wire.check_tags([tag])
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


def check_cursor(text: str) -> str:
    """A place in a listing, as far as it can be one; otherwise its beginning."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_CURSOR))
    return text if is_number and int(text) < _MAX_CURSOR else BEGINNING


def find(
    search: Search,
    operations: Operations,
    settings: Settings,
    *,
    cursor: str = BEGINNING,
    rows: int = PAGE,
    limit: int,
) -> Steps[Found]:
    """Look for about `rows` tasks, and at no more than about `limit`, from `cursor` on.

    All that the last look found is shown, so that nothing is left out between two pages. Tasks come
    without their arguments: no list shows them, and thousands of them may not fit into memory.
    """
    if search.id and not search.tag:
        return (yield from _seek(search, operations, cursor=cursor, rows=rows))
    first, last = None, None
    if not search.tag:
        low, last = yield from _span(search, settings)
        first = max(int(cursor), low)
        cursor = str(first)
    chunk = min(rows, _CHUNK) if not search.narrowed else _CHUNK

    def read(cursor: str) -> Call[calls.Page]:
        return calls.list_page(
            state=search.state, func=search.func or None, tag=search.tag or None, cursor=cursor,
            count=chunk if last is None else min(chunk, last - int(cursor)),
        )  # fmt: skip

    def past_the_last() -> bool:
        return last is not None and int(pages.cursor) >= last

    tasks: list[Task] = []
    examined = 0
    pages = calls.Pages(read, cursor)
    while not past_the_last() and (page := (yield from pages.next())):
        examined += page.examined
        tasks += [_lean(task) for task in page.tasks if search.matches(task)]
        if len(tasks) >= rows or examined >= limit:
            break
    cursor = BEGINNING if past_the_last() else pages.cursor
    return Found(tasks=tasks, examined=examined, first=first, cursor=cursor)


def _seek(search: Search, operations: Operations, *, cursor: str, rows: int) -> Steps[Found]:
    """Look for tasks whose ids begin so, and at no more ids than MAX_SOUGHT.

    Without a state each has an equal part of that, and there is no next page.
    """
    states = [search.state] if search.state else list(State)
    tasks: list[Task] = []
    examined, rank = 0, min(int(cursor), _LAST_RANK)
    unseen = []
    next_page = BEGINNING
    exact = (yield from operations.get(search.id)) if cursor == BEGINNING else None
    if exact is not None and exact.state in states and search.matches(exact):
        tasks.append(_lean(exact))
    for state in states:
        looked, place = 0, rank
        while looked < MAX_SOUGHT // len(states) and len(tasks) < rows:
            sought = yield from calls.seek(
                state, search.id, rank=place, examine=_SOUGHT_AT_ONCE,
                find=max(rows - len(tasks), 1),
            )  # fmt: skip
            looked += sought.examined
            for id in sought.ids:
                # The exact one stands first already; what is no id is no task of ours.
                if id == search.id or not wire.is_id(id):
                    continue
                task = yield from operations.get(id)
                if task is not None and task.state is state and search.matches(task):
                    tasks.append(_lean(task))
            if sought.rank is None:
                break
            place = sought.rank
        else:
            unseen.append(state)
            next_page = str(place)
        examined += looked
    if search.state:
        return Found(tasks=tasks, examined=examined, first=None, cursor=next_page)
    return Found(tasks=tasks, examined=examined, first=None, cursor=BEGINNING, unseen=tuple(unseen))


def _lean(task: Task) -> Task:
    return replace(task, args=(), kwargs={}, key=b"", result=None)


def _span(search: Search, settings: Settings) -> Steps[tuple[int, int]]:
    """The ranks between which a state's tasks of these times stand, by their scores.

    A score may be older than the timer of its task that was put off, so each task's own time is
    looked at as well.
    """
    state = search.state or State.PENDING
    bounds: list[int | None] = [None, None]
    keep = 0.0
    if state.finished:
        keep = settings.keep_failed if state is State.FAILED else settings.keep_succeeded
    # What is paused, or runs, is looked at at other times than its own: those are few, or all seen.
    if state.finished or state is State.PENDING:
        bounds = [
            to_ms(moment) + round(keep * 1000) if moment is not None else None
            for moment in (search.after, search.before)
        ]
    counts = yield from calls.count_before(state, [bound for bound in bounds if bound is not None])
    ranks = iter(counts.before)
    after = next(ranks) if bounds[0] is not None else 0
    before = next(ranks) if bounds[1] is not None else counts.total
    # What has finished is listed latest first.
    return (counts.total - before, counts.total - after) if state.finished else (after, before)


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

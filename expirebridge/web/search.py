"""Finds tasks for a page: by state, id, function, tag and time, and never by a walk over all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlencode

from expirebridge.bridge import Operations
from expirebridge.errors import InvalidTask
from expirebridge.settings import Settings
from expirebridge.task import keys
from expirebridge.task.calls import inspection, looking
from expirebridge.task.calls.call import LEFT_OUT, Command, Steps, at_if_available
from expirebridge.task.calls.inspection import CountsBefore
from expirebridge.task.calls.pages import BEGINNING, Pages
from expirebridge.task.listings import LeftOut
from expirebridge.task.operations.listing import (
    LAST_RANK,
    PageChunk,
    PageCursor,
    PageStream,
    encode_spots,
    over_partitions,
    read_spots,
    rows_of_each,
    take,
)
from expirebridge.task.task import UNCLAIMED, State, Task, to_ms

# The search of a page, and its result.

MAX_SOUGHT = 100_000
"""Most ids that one page examines for a prefix."""
SOUGHT_AT_ONCE = 2_000
"""Ids that one request examines, which is fast: it reads no records."""
_WAITS = ("", "first", "retry")


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A filter for tasks. Its times are those at which tasks are due or, once finished, ended."""

    state: State | None = State.PENDING
    id: str = ""
    """The prefix of the id."""
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
        """True if tasks in its state can wait for an attempt."""
        return self.state in {None, *UNCLAIMED}

    @property
    def narrowed(self) -> bool:
        """True if not all tasks in its state match it."""
        return len(self.fields()) > 1

    def matches(self, task: Task) -> bool:
        """True if the task matches; its state and tag are checked where it is read."""
        if not task.id.startswith(self.id) or (self.func and task.func != self.func):
            return False
        if self.wait and self.can_wait:
            waits_for = "retry" if task.attempt else "first"
            if task.state not in UNCLAIMED or waits_for != self.wait:
                return False
        moment = (task.ended or task.due) if task.state.finished else task.due
        early = self.after is not None and moment < self.after
        late = self.before is not None and moment >= self.before
        return not early and not late


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchPage:
    """A page of results, and the number of tasks examined for it."""

    tasks: list[Task]
    examined: int
    first: int | None
    """The rank at which the page begins, counted from 0; None where there is no order (a tag)."""
    cursor: str
    """The cursor of the next page; "0" if there is none."""
    unseen: tuple[State, ...] = ()
    """States whose ids were not all examined; each can be searched by itself."""
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
        elif state not in {State.PENDING, State.WAITING}:
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


# The search for tasks in several partitions: what each has in order, taken as one.

_OVER = PageCursor(over=True)


def find_everywhere(
    search: Search, operations: Operations, settings: Settings, count: int, *,
    cursor: str, rows: int, limit: int,
) -> Steps[SearchPage]:  # fmt: skip
    """Find about `rows` tasks in all partitions, and examine at most about `limit`."""
    if search.id and not search.tag:
        return (yield from _spread_search_seek(search, operations, count, rows=rows))
    spots = read_spots(cursor) if cursor != BEGINNING else [PageCursor()] * count
    if spots is None or len(spots) != count:
        spots = [PageCursor()] * count  # of another number of partitions: from the beginning
    streams = []
    for number, spot in enumerate(spots):
        low, last = 0, None
        if not search.tag and not spot.over:
            low, last = yield from _span(search, settings, number)
        begin = _begin(spot, low, last)
        read = partial(_read, search, number, count, last)
        streams.append(PageStream(read, partial(_order, search), begin))
    tasks, examined = yield from take(streams, limit=rows, examine=limit)
    over = all(stream.is_over for stream in streams)
    following = BEGINNING if over else encode_spots([stream.spot for stream in streams])
    left_out = yield from LEFT_OUT
    return SearchPage(
        tasks=tasks, examined=examined, first=None, cursor=following, left_out=left_out
    )  # fmt: skip


def _begin(spot: PageCursor, low: int, last: int | None) -> PageCursor:
    """The cursor, moved to the first candidate; ended if that is past the last one."""
    if spot.over or last is None:
        return spot
    rank = max(int(spot.cursor), low)
    if rank >= last:
        return _OVER
    return spot if str(rank) == spot.cursor else PageCursor(str(rank))


def _read(
    search: Search, number: int, count: int, last: int | None, cursor: str
) -> Steps[PageChunk[Task] | None]:
    rows = rows_of_each(count)
    call = looking.list_page(
        state=search.state, func=search.func or None, tag=search.tag or None, cursor=cursor,
        count=rows if last is None else min(rows, last - int(cursor)),
    )  # fmt: skip
    page = yield from at_if_available(call, number, fail_fast=True)
    if page is None:
        return None
    past = last is not None and int(page.cursor) >= last
    found = [lean(task) for task in page.tasks if search.matches(task)]
    return PageChunk(found, BEGINNING if past else page.cursor, page.examined)


def _order(search: Search, task: Task) -> float:
    if search.tag:
        return 0
    if task.state.finished:
        return -to_ms(task.ended) if task.ended is not None else 0
    return to_ms(task.due)


def _span(search: Search, settings: Settings, number: int) -> Steps[tuple[int, int | None]]:
    """The ranks in a partition between which the tasks of these times stand."""
    bounds = Bounds.of(search, settings)
    call = inspection.count_before(bounds.state, bounds.given)
    counts = yield from at_if_available(call, number, fail_fast=True)
    return bounds.ranks(counts) if counts is not None else (0, None)


def _spread_search_seek(
    search: Search, operations: Operations, count: int, *, rows: int
) -> Steps[SearchPage]:
    """Find tasks by id prefix; each partition and state has an equal share of the limit."""
    states = [search.state] if search.state else list(State)
    tasks, examined, unseen = list[Task](), 0, list[State]()
    exact = yield from operations.get(search.id)
    if exact is not None and exact.state in states and search.matches(exact):
        tasks.append(lean(exact))
    each = max(MAX_SOUGHT // len(states) // count, SOUGHT_AT_ONCE)
    for state in states:
        for number in range(count):
            ids, looked, seen = yield from ids_in(search.id, state, number, each, rows - len(tasks))
            examined += looked
            if not seen and state not in unseen:
                unseen.append(state)
            for id in ids:
                task = (yield from operations.get(id)) if id != search.id else None
                if task is not None and task.state is state and search.matches(task):
                    tasks.append(lean(task))
    left_out = yield from LEFT_OUT
    return SearchPage(
        tasks=tasks, examined=examined, first=None, cursor=BEGINNING, unseen=tuple(unseen),
        left_out=left_out,
    )  # fmt: skip


def ids_in(
    beginning: str, state: State, number: int, most: int, rows: int
) -> Steps[tuple[list[str], int, bool]]:
    """Matching ids of one partition, the number examined, and whether those were all."""
    ids, looked, rank = list[str](), 0, 0
    while looked < most and len(ids) < rows:
        call = inspection.find_ids(
            state, beginning, rank=rank, examine=SOUGHT_AT_ONCE, find=max(rows - len(ids), 1)
        )
        sought = yield from at_if_available(call, number, fail_fast=True)
        if sought is None:
            return ids, looked, True  # it is named among those that are left out
        looked += sought.examined
        # A name that is no id belongs to no task.
        ids += [id for id in sought.ids if keys.is_id(id)]
        if sought.rank is None:
            return ids, looked, True
        rank = sought.rank
    return ids, looked, False


__all__ = ["BULK_LIMIT", "MAX_EXAMINED", "PAGE", "Search", "SearchPage", "check_cursor", "find"]

PAGE = 50
"""Rows of a page."""
MAX_EXAMINED = 2_000
"""Most tasks that one page examines, even if few of them match."""
BULK_LIMIT = 10_000
"""Most tasks that one action on a filter examines."""

_CHUNK = 200
_MAX_CURSOR = 2**64


def check_cursor(text: str) -> str:
    """A place in a listing, as far as it can be one; otherwise its beginning."""
    if read_spots(text) is not None:
        return text
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
) -> Steps[SearchPage]:
    """Find about `rows` tasks from `cursor` on, and examine at most about `limit`.

    All that the last look found is shown, so that nothing is left out between two pages. Tasks come
    without their arguments: no list shows them, and thousands of them may not fit into memory.
    """

    def find_in(count: int) -> Steps[SearchPage]:
        if count == 1:
            begin = cursor if cursor.isdigit() else BEGINNING
            return _find(search, operations, settings, cursor=begin, rows=rows, limit=limit)
        return find_everywhere(
            search, operations, settings, count, cursor=cursor, rows=rows, limit=limit
        )

    return over_partitions(find_in)


def _find(
    search: Search, operations: Operations, settings: Settings, *,
    cursor: str, rows: int, limit: int,
) -> Steps[SearchPage]:  # fmt: skip
    if search.id and not search.tag:
        return (yield from _seek(search, operations, cursor=cursor, rows=rows))
    first, last = None, None
    if not search.tag:
        bounds = Bounds.of(search, settings)
        counts = yield from inspection.count_before(bounds.state, bounds.given)
        low, last = bounds.ranks(counts)
        first = max(int(cursor), low)
        cursor = str(first)
    chunk = min(rows, _CHUNK) if not search.narrowed else _CHUNK

    def read(cursor: str) -> Command[looking.TaskPage]:
        return looking.list_page(
            state=search.state, func=search.func or None, tag=search.tag or None, cursor=cursor,
            count=chunk if last is None else min(chunk, last - int(cursor)),
        )  # fmt: skip

    def past_the_last() -> bool:
        return last is not None and int(pages.cursor) >= last

    tasks: list[Task] = []
    examined = 0
    pages = Pages(read, cursor)
    while not past_the_last() and (page := (yield from pages.next())):
        examined += page.examined
        tasks += [lean(task) for task in page.tasks if search.matches(task)]
        if len(tasks) >= rows or examined >= limit:
            break
    cursor = BEGINNING if past_the_last() else pages.cursor
    return SearchPage(tasks=tasks, examined=examined, first=first, cursor=cursor)


def _seek(search: Search, operations: Operations, *, cursor: str, rows: int) -> Steps[SearchPage]:
    """Find tasks by id prefix, and examine at most MAX_SOUGHT ids.

    Without a state each has an equal part of that, and there is no next page.
    """
    states = [search.state] if search.state else list(State)
    tasks: list[Task] = []
    examined, rank = 0, min(int(cursor), LAST_RANK)
    unseen = []
    next_page = BEGINNING
    exact = (yield from operations.get(search.id)) if cursor == BEGINNING else None
    if exact is not None and exact.state in states and search.matches(exact):
        tasks.append(lean(exact))
    for state in states:
        looked, place = 0, rank
        while looked < MAX_SOUGHT // len(states) and len(tasks) < rows:
            sought = yield from inspection.find_ids(
                state, search.id, rank=place, examine=SOUGHT_AT_ONCE,
                find=max(rows - len(tasks), 1),
            )  # fmt: skip
            looked += sought.examined
            for id in sought.ids:
                # The exact one stands first already; what is no id is no task of ours.
                if id == search.id or not keys.is_id(id):
                    continue
                task = yield from operations.get(id)
                if task is not None and task.state is state and search.matches(task):
                    tasks.append(lean(task))
            if sought.rank is None:
                break
            place = sought.rank
        else:
            unseen.append(state)
            next_page = str(place)
        examined += looked
    if search.state:
        return SearchPage(tasks=tasks, examined=examined, first=None, cursor=next_page)
    return SearchPage(
        tasks=tasks, examined=examined, first=None, cursor=BEGINNING, unseen=tuple(unseen)
    )

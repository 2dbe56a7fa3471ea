"""The search for tasks in several partitions: what each has in order, taken as one."""

from functools import partial

from expirebridge.model import keys
from expirebridge.model.task import State, Task, to_ms
from expirebridge.producer.operations import Operations
from expirebridge.producer.streams import (
    Part,
    Spot,
    Stream,
    encode_spots,
    read_spots,
    rows_of_each,
    take,
)
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import BEGINNING, LEFT_OUT, Steps
from expirebridge.web.looked_for import MAX_SOUGHT, SOUGHT_AT_ONCE, Bounds, Found, Search, lean

_OVER = Spot(over=True)


def find_everywhere(
    search: Search, operations: Operations, settings: Settings, count: int, *,
    cursor: str, rows: int, limit: int,
) -> Steps[Found]:  # fmt: skip
    """Look for about `rows` tasks in all partitions, and at no more than about `limit`."""
    if search.id and not search.tag:
        return (yield from _seek(search, operations, count, rows=rows))
    spots = read_spots(cursor) if cursor != BEGINNING else [Spot()] * count
    if spots is None or len(spots) != count:
        spots = [Spot()] * count  # of another number of partitions: from the beginning
    streams = []
    for number, spot in enumerate(spots):
        low, last = 0, None
        if not search.tag and not spot.over:
            low, last = yield from _span(search, settings, number)
        begin = _begin(spot, low, last)
        read = partial(_read, search, number, count, last)
        streams.append(Stream(read, partial(_order, search), begin))
    tasks, examined = yield from take(streams, limit=rows, examine=limit)
    over = all(stream.is_over for stream in streams)
    following = BEGINNING if over else encode_spots([stream.spot for stream in streams])
    left_out = yield from LEFT_OUT
    return Found(
        tasks=tasks, examined=examined, first=None, cursor=following, left_out=left_out
    )  # fmt: skip


def _begin(spot: Spot, low: int, last: int | None) -> Spot:
    """The spot, not before what is looked for; over if that is past the last of it."""
    if spot.over or last is None:
        return spot
    rank = max(int(spot.cursor), low)
    if rank >= last:
        return _OVER
    return spot if str(rank) == spot.cursor else Spot(str(rank))


def _read(
    search: Search, number: int, count: int, last: int | None, cursor: str
) -> Steps[Part[Task] | None]:
    rows = rows_of_each(count)
    call = commands.list_page(
        state=search.state, func=search.func or None, tag=search.tag or None, cursor=cursor,
        count=rows if last is None else min(rows, last - int(cursor)),
    )  # fmt: skip
    page = yield from commands.at_if_there(call, number, hasty=True)
    if page is None:
        return None
    past = last is not None and int(page.cursor) >= last
    found = [lean(task) for task in page.tasks if search.matches(task)]
    return Part(found, BEGINNING if past else page.cursor, page.examined)


def _order(search: Search, task: Task) -> float:
    if search.tag:
        return 0
    if task.state.finished:
        return -to_ms(task.ended) if task.ended is not None else 0
    return to_ms(task.due)


def _span(search: Search, settings: Settings, number: int) -> Steps[tuple[int, int | None]]:
    """The ranks in a partition between which the tasks of these times stand."""
    bounds = Bounds.of(search, settings)
    call = commands.count_before(bounds.state, bounds.given)
    counts = yield from commands.at_if_there(call, number, hasty=True)
    return bounds.ranks(counts) if counts is not None else (0, None)


def _seek(search: Search, operations: Operations, count: int, *, rows: int) -> Steps[Found]:
    """Look for tasks whose ids begin so; each partition and state has an equal part of that."""
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
    return Found(
        tasks=tasks, examined=examined, first=None, cursor=BEGINNING, unseen=tuple(unseen),
        left_out=left_out,
    )  # fmt: skip


def ids_in(
    beginning: str, state: State, number: int, most: int, rows: int
) -> Steps[tuple[list[str], int, bool]]:
    """Ids that begin so in one partition, how many were looked at, and whether those were all."""
    ids, looked, rank = list[str](), 0, 0
    while looked < most and len(ids) < rows:
        call = commands.seek(
            state, beginning, rank=rank, examine=SOUGHT_AT_ONCE, find=max(rows - len(ids), 1)
        )
        sought = yield from commands.at_if_there(call, number, hasty=True)
        if sought is None:
            return ids, looked, True  # it is named among those that are left out
        looked += sought.examined
        # What is no id is no task of ours.
        ids += [id for id in sought.ids if keys.is_id(id)]
        if sought.rank is None:
            return ids, looked, True
        rank = sought.rank
    return ids, looked, False

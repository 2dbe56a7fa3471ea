"""Finds tasks for a page: by state, id, function, tag and time, and never by a walk over all."""

from expirebridge.errors import PartitionsDiffer
from expirebridge.model import keys
from expirebridge.model.task import State, Task
from expirebridge.producer.operations import Operations
from expirebridge.producer.streams import LAST_RANK, read_spots
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.commands import BEGINNING, PARTITIONS, Call, Steps
from expirebridge.web.looked_for import MAX_SOUGHT, SOUGHT_AT_ONCE, Bounds, Found, Search, lean
from expirebridge.web.spread_search import find_everywhere

__all__ = ["BULK_LIMIT", "MAX_EXAMINED", "PAGE", "Found", "Search", "check_cursor", "find"]

PAGE = 50
"""Rows of a page."""
MAX_EXAMINED = 2_000
"""Tasks that one page looks at, at most, however few of them match."""
BULK_LIMIT = 10_000
"""Tasks that one action on a filter looks at, at most."""

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
) -> Steps[Found]:
    """Look for about `rows` tasks, and at no more than about `limit`, from `cursor` on.

    All that the last look found is shown, so that nothing is left out between two pages. Tasks come
    without their arguments: no list shows them, and thousands of them may not fit into memory.
    """
    while True:
        count = yield from PARTITIONS
        try:
            if count == 1:
                begin = cursor if cursor.isdigit() else BEGINNING
                one = _find(search, operations, settings, cursor=begin, rows=rows, limit=limit)
                return (yield from one)
            return (
                yield from find_everywhere(
                    search, operations, settings, count, cursor=cursor, rows=rows, limit=limit
                )
            )
        except PartitionsDiffer:
            if (yield from PARTITIONS) == count:
                raise


def _find(
    search: Search, operations: Operations, settings: Settings, *,
    cursor: str, rows: int, limit: int,
) -> Steps[Found]:  # fmt: skip
    if search.id and not search.tag:
        return (yield from _seek(search, operations, cursor=cursor, rows=rows))
    first, last = None, None
    if not search.tag:
        bounds = Bounds.of(search, settings)
        counts = yield from commands.count_before(bounds.state, bounds.given)
        low, last = bounds.ranks(counts)
        first = max(int(cursor), low)
        cursor = str(first)
    chunk = min(rows, _CHUNK) if not search.narrowed else _CHUNK

    def read(cursor: str) -> Call[commands.Page]:
        return commands.list_page(
            state=search.state, func=search.func or None, tag=search.tag or None, cursor=cursor,
            count=chunk if last is None else min(chunk, last - int(cursor)),
        )  # fmt: skip

    def past_the_last() -> bool:
        return last is not None and int(pages.cursor) >= last

    tasks: list[Task] = []
    examined = 0
    pages = commands.Pages(read, cursor)
    while not past_the_last() and (page := (yield from pages.next())):
        examined += page.examined
        tasks += [lean(task) for task in page.tasks if search.matches(task)]
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
    examined, rank = 0, min(int(cursor), LAST_RANK)
    unseen = []
    next_page = BEGINNING
    exact = (yield from operations.get(search.id)) if cursor == BEGINNING else None
    if exact is not None and exact.state in states and search.matches(exact):
        tasks.append(lean(exact))
    for state in states:
        looked, place = 0, rank
        while looked < MAX_SOUGHT // len(states) and len(tasks) < rows:
            sought = yield from commands.seek(
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
        return Found(tasks=tasks, examined=examined, first=None, cursor=next_page)
    return Found(tasks=tasks, examined=examined, first=None, cursor=BEGINNING, unseen=tuple(unseen))

"""Operations that look at tasks, and change nothing."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from expirebridge.errors import InvalidTask
from expirebridge.task import calls, keys
from expirebridge.task.calls.call import LEFT_OUT, PARTITIONS, Command, Steps
from expirebridge.task.durations import check_aware
from expirebridge.task.operations.base import OperationGroup, refuse_left_out, task_pages
from expirebridge.task.task import State, Task, to_ms

if TYPE_CHECKING:
    from expirebridge.task.listings import Counts, Listing
    from expirebridge.task.reason import Reason


class LookingOperations(OperationGroup):
    """Find tasks, list them and count them."""

    def get(self, id: str) -> Command[Task | None]:
        """Return the task of this id as it is now, or None. Raises InvalidTask for an illegal id.

        Finished tasks are forgotten after a while: see `docs/reference/states.md`.
        """
        return calls.looking.get(keys.check_id(id), self._key_ring)

    def why(self, id: str) -> Steps["Reason | None"]:
        """Return why the task of this id has not run, or what became of it; None if there is none.

        The listeners are asked only about a task that waits for one. Raises InvalidTask for an
        illegal id.
        """
        from expirebridge.task.reasons import find_situation  # noqa: PLC0415 - not for making tasks

        found = yield from find_situation(keys.check_id(id), self._settings)
        return found.reason() if found is not None else None

    def why_absent(self, id: str) -> Steps[str]:
        """Return why there may be no task of this id here, in words.

        For after `get` returned None, or a change NOT_FOUND: a ledger with a horizon keeps what is
        due later in SQL, where its own methods find it. Raises InvalidTask for an illegal id.
        """
        from expirebridge.task.absence import why_absent  # noqa: PLC0415 - not for making tasks

        return why_absent(keys.check_id(id))

    def list(
        self,
        *,
        state: State | str | None = None,
        func: str | None = None,
        tag: str | None = None,
        group: str | None = None,
        due_before: datetime | None = None,
        failed_since: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Steps["Listing"]:
        """Return up to `limit` tasks of a state, tag or group; waiting ones soonest first.

        `due_before` asks for tasks that are due earlier, `failed_since` for those that failed at
        that time or later; both are aware datetimes.

        It looks at no more than 10,000 tasks, whatever it finds: `listing.examined` and
        `listing.complete` say how far it came. `listing.cursor` is then where it goes on: give it
        as `cursor`, and the same arguments, for the next page. Pages are no snapshot: of tasks that
        come, go, move or change between two pages, some may be listed twice, or not at all.

        Raises InvalidTask for values that cannot be.
        """
        from expirebridge.task.operations.listing import ListingPosition, TaskFilter, find  # noqa: PLC0415 - not for making tasks

        wanted = _check_state(state)
        if due_before is not None:
            check_aware(due_before, name="due_before")
        if failed_since is not None:
            check_aware(failed_since, name="failed_since")
            if wanted not in {None, State.FAILED}:
                raise InvalidTask(f"failed_since: it asks for failed tasks, not for {wanted} ones")
            wanted = State.FAILED

        def matches(task: Task) -> bool:
            return (due_before is None or task.due < due_before) and (
                failed_since is None or (task.ended is not None and task.ended >= failed_since)
            )

        if func is not None:
            keys.check_func(func)
        _check_source(tag, group)
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        # A tag and a group have tasks in any state; otherwise each state has a set of its own.
        sources = list(State) if tag is group is wanted is None else [wanted]
        place = (
            ListingPosition(sources[0]) if cursor is None else ListingPosition.read(cursor, sources)
        )
        wanted_tasks = TaskFilter(
            func=func,
            tag=tag,
            group=group,
            matches=matches,
            limit=limit,
            key_ring=self._key_ring,
        )
        return find(sources, place, wanted_tasks)

    def count(self) -> Steps["Counts"]:
        """Return how many tasks are in each state, and how many listeners are live.

        Partitions that cannot be asked are left out, and named in `left_out`.
        """
        counts = yield from calls.looking.count(self._settings.lease)
        left_out = yield from LEFT_OUT
        return replace(counts, left_out=left_out) if left_out else counts

    def find_failed(
        self,
        *,
        func: str | None = None,
        tag: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
    ) -> Steps[Sequence[str]]:
        """Return the ids of all failed tasks that match, the latest first.

        However many there are: for `retry_failed` and `purge_failed`. `since` is when they failed,
        at the earliest. Of a group that waits for failed members, it finds those it waits for.
        Raises InvalidTask for values that cannot be, and PartlyDone if partitions
        cannot be asked: `done` has what the others found.
        """
        if func is not None:
            keys.check_func(func)
        _check_source(tag, group)
        if since is not None:
            check_aware(since, name="since")
        failed: list[tuple[str, datetime | None]] = []
        pages = task_pages(state=State.FAILED, func=func, tag=tag, group=group)
        while page := (yield from pages.next()):
            failed += [
                (task.id, task.ended)
                for task in page.tasks
                if since is None or (task.ended is not None and task.ended >= since)
            ]
        if group is not None or (yield from PARTITIONS) > 1:
            failed.sort(key=_latest_first)
        # What failed meanwhile moves the others to later pages.
        found = list(dict.fromkeys(id for id, _ in failed))
        yield from refuse_left_out(found)
        return found


def _check_source(tag: str | None, group: str | None) -> None:
    if tag is not None:
        keys.check_tags([tag])
    if group is not None:
        keys.check_group(group)
        if tag is not None:
            raise InvalidTask("give either tag or group, not both")


def _latest_first(failed: tuple[str, datetime | None]) -> int:
    _, ended = failed
    return -to_ms(ended) if ended is not None else 0


def _check_state(state: State | str | None) -> State | None:
    try:
        return State(state) if state is not None else None
    except ValueError:
        raise InvalidTask(f"state={state!r}: one of {', '.join(State)}") from None

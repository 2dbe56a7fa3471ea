"""Operations that change tasks: cancel, move, pause and resume them, run them now, forget them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from expirebridge.errors import InvalidTask, PartlyDone
from expirebridge.task import keys
from expirebridge.task.calls import producing
from expirebridge.task.calls.call import CHUNK, Command, Steps, chunks, only
from expirebridge.task.durations import Duration, seconds_of
from expirebridge.task.new_task import when_of
from expirebridge.task.operations.base import OperationGroup, refuse_left_out, task_pages
from expirebridge.task.task import Change, State

Progress = Callable[[Mapping[Change, int]], None]
"""Called after each batch with the numbers of tasks changed so far."""

_ChangeAll = Callable[[Sequence[str]], Command[list[Change]]]
_resume_many = partial(producing.resume, spare_follow_ups=True)


class ChangingOperations(OperationGroup):
    """Change tasks: one, those of some ids, or all of a tag."""

    def beat(self, id: str) -> Command[Change]:
        """Say that what `id` watches is alive: its task is put off to its `ttl` from now.

        Returns moved (a paused task is pending again), rearmed (its handler runs at present; the
        task waits for `ttl` afterwards), finished (it fired, or was cancelled), not found, or not
        watched (the task was not made by `watch`). After finished or not found, `watch` it again.
        Raises InvalidTask for an illegal id.
        """
        return producing.beat(keys.check_id(id))

    def cancel(self, id: str) -> Command[Change]:
        """Cancel a task; returns cancelled, running, finished or not found.

        A running task is not stopped by that, but no further attempt follows; an async handler is
        cancelled as soon as its listener hears of it. Raises InvalidTask for an illegal id.
        """
        return only(producing.cancel([keys.check_id(id)], keep=self._settings.keep_succeeded))

    def cancel_all(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Cancel each of these tasks, as `cancel` does one; returns how many had which answer.

        Sent in batches of up to 100. `progress` is called after each batch with the numbers so
        far; what it raises ends the work. Raises InvalidTask for an illegal id; the batches before
        it are done then.
        """
        keep = self._settings.keep_succeeded
        return self._change_all(ids, lambda ids: producing.cancel(ids, keep=keep), progress)

    def cancel_tag(self, tag: str, *, progress: Progress | None = None) -> Steps[dict[Change, int]]:
        """Cancel every unfinished task with the tag; returns how many were cancelled or running.

        Sent in batches of about 100: tasks that are made meanwhile may be missed. `progress` is
        called after each batch with the numbers so far; what it raises ends the work. Raises
        InvalidTask for an illegal tag.
        """
        keep = self._settings.keep_succeeded
        return self._change_tag(
            tag, Change.CANCELLED, lambda ids: producing.cancel(ids, keep=keep), progress
        )

    def cancel_func(
        self, func: str, *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Cancel every unfinished task of a function; returns how many were cancelled or running.

        Their ids are read first: tasks that are made meanwhile may be missed. `progress` is called
        after each batch of up to 100 with the numbers so far. Raises InvalidTask for an illegal
        name, and PartlyDone if partitions cannot be asked.
        """
        keys.check_func(func)
        found = dict[str, None]()
        for state in (state for state in State if not state.finished):
            pages = task_pages(state=state, func=func)
            while page := (yield from pages.next()):
                found |= dict.fromkeys(task.id for task in page.tasks)
        changes = yield from self.cancel_all(found, progress=progress)
        told = {change: changes.get(change, 0) for change in (Change.CANCELLED, Change.RUNNING)}
        yield from refuse_left_out(told)
        return told

    def reschedule(
        self, id: str, delay: Duration | None = None, *, at: datetime | None = None
    ) -> Command[Change]:
        """Move a task's due time to `delay` from now, or to `at`.

        Returns moved, rearmed (its handler runs at present; it runs once more then), finished or
        not found. A paused task is pending afterwards. Raises InvalidTask for an illegal id or
        time.
        """
        return producing.reschedule(keys.check_id(id), when_of(delay, at))

    def put_off(self, id: str, by: Duration) -> Command[Change]:
        """Put a task off by so much from when it is due; a paused one has so much more time left.

        Returns moved, running (nothing is changed then), finished or not found. Raises InvalidTask
        for an illegal id or duration.
        """
        seconds = seconds_of(by, name="by")
        return only(producing.put_off([keys.check_id(id)], seconds))

    def put_off_all(
        self, ids: Iterable[str], by: Duration, *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Put off each of these tasks, as `put_off` does one; returns how many had which answer.

        Works in batches, as `cancel_all`. Raises InvalidTask for an illegal id or duration.
        """
        seconds = seconds_of(by, name="by")
        return self._change_all(ids, lambda ids: producing.put_off(ids, seconds), progress)

    def put_off_tag(
        self, tag: str, by: Duration, *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Put off every unfinished task with the tag, as `put_off` does one.

        Returns how many were moved or running. Works in batches, as `cancel_tag`. Raises
        InvalidTask for an illegal tag or duration.
        """
        seconds = seconds_of(by, name="by")
        return self._change_tag(
            tag, Change.MOVED, lambda ids: producing.put_off(ids, seconds), progress
        )

    def pause(self, id: str) -> Command[Change]:
        """Pause a task that waits, and keep the time that is left.

        Returns paused, running, finished or not found. Raises InvalidTask for an illegal id.
        """
        return only(producing.pause([keys.check_id(id)]))

    def pause_all(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Pause each of these tasks, as `pause` does one; returns how many had which answer.

        Works in batches, as `cancel_all`. Raises InvalidTask for an illegal id.
        """
        return self._change_all(ids, producing.pause, progress)

    def pause_tag(self, tag: str, *, progress: Progress | None = None) -> Steps[dict[Change, int]]:
        """Pause every task with the tag that waits; returns how many are paused, or running.

        Works in batches, as `cancel_tag`. Raises InvalidTask for an illegal tag.
        """
        return self._change_tag(tag, Change.PAUSED, producing.pause, progress)

    def resume(self, id: str) -> Command[Change]:
        """Let a paused task go on: it is due when the time that was left has passed.

        Returns resumed, running, finished or not found. Raises InvalidTask for an illegal id.
        """
        return only(producing.resume([keys.check_id(id)]))

    def resume_all(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Resume each of these tasks, as `resume` does one; returns how many had which answer.

        The follow-up of a group that has not ended stays paused; `resume` starts it early.
        Works in batches, as `cancel_all`. Raises InvalidTask for an illegal id.
        """
        return self._change_all(ids, _resume_many, progress)

    def resume_tag(self, tag: str, *, progress: Progress | None = None) -> Steps[dict[Change, int]]:
        """Let every paused task with the tag go on; returns how many now wait, or are running.

        The follow-up of a group that has not ended stays paused.
        Works in batches, as `cancel_tag`. Raises InvalidTask for an illegal tag.
        """
        return self._change_tag(tag, Change.RESUMED, _resume_many, progress)

    def run_now(self, id: str) -> Command[Change]:
        """Make a task due now; a finished one, failed or not, starts over with new attempts.

        Returns due now, waiting (it is due and waits for a slot; nothing is changed), running or
        not found; or finished, for one of a ledger that was erased.
        Raises InvalidTask for an illegal id.
        """
        return producing.run_now(keys.check_id(id))

    def retry_failed(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Let failed tasks start over: `run_now` for each. Returns how many of each change.

        `progress` is called now and then with the numbers so far; what it raises ends the work.
        Raises InvalidTask for an illegal id.
        """
        changes: Counter[Change] = Counter()
        for count, id in enumerate(_several(ids), 1):
            changes[(yield from producing.run_now(keys.check_id(id)))] += 1
            if progress is not None and count % CHUNK == 0:
                progress(changes)
        return dict(changes)

    def purge_failed(
        self, ids: Iterable[str], *, progress: Progress | None = None
    ) -> Steps[dict[Change, int]]:
        """Forget failed tasks; returns how many were forgotten, not failed or not found.

        A listener's next pass takes their records away: it may take a second, 15 from when they
        failed, and as long as no listener runs. Works in batches, as `cancel_tag`. Raises
        InvalidTask for an illegal id.
        """
        return self._change_all(ids, producing.purge, progress)

    def _change_all(
        self, ids: Iterable[str], change: _ChangeAll, progress: Progress | None
    ) -> Steps[dict[Change, int]]:
        changes, undone = Counter[Change](), list[str]()
        fault: PartlyDone | None = None
        for chunk in chunks(keys.check_id(id) for id in _several(ids)):
            try:
                done: Sequence[Change | None] = yield from change(chunk)
            except PartlyDone as partly:
                done, fault = partly.done, partly
                undone += [chunk[place] for place in partly.undone]
            changes.update(one for one in done if one is not None)
            if progress is not None:
                progress(changes)
        if fault is not None:
            raise PartlyDone(dict(changes), undone, fault.__cause__)
        return dict(changes)

    def _change_tag(
        self,
        tag: str,
        done: Change,
        change: _ChangeAll,
        progress: Progress | None,
    ) -> Steps[dict[Change, int]]:
        keys.check_tags([tag])
        changes: Counter[Change] = Counter()
        # A set that grows while it is walked over may show an id twice, and twice is not the same
        # as once for what is put off.
        seen: set[str] = set()
        pages = task_pages(tag=tag)
        while page := (yield from pages.next()):
            ids = [task.id for task in page.tasks if not task.state.finished]
            ids = [id for id in dict.fromkeys(ids) if id not in seen]
            seen.update(ids)
            if ids:
                changes.update((yield from change(ids)))
            if progress is not None:
                progress({change: changes[change] for change in (done, Change.RUNNING)})
        told = {change: changes[change] for change in (done, Change.RUNNING)}
        yield from refuse_left_out(told)
        return told


def _several(ids: Iterable[str]) -> Iterable[str]:
    """The ids. Raises InvalidTask for one that is not in a list: its letters would be taken."""
    if isinstance(ids, str):
        raise InvalidTask(f"ids={ids!r}: give a list of ids, such as [{ids!r}]")
    return ids

"""Operations on groups: make one, add members, close, cancel and look at it."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from expirebridge import groups, handlers
from expirebridge.errors import (
    GroupClosed,
    GroupDiffers,
    GroupIncomplete,
    GroupNotFound,
    InvalidTask,
    TaskExists,
)
from expirebridge.groups.names import FOLLOW_UP, MOST_MEMBERS, ON_FAILED, OnFailed, member_id
from expirebridge.task.calls.call import Command, Steps
from expirebridge.task.calls.producing import MakeReply, NewTask, Obstacle
from expirebridge.task.keys import check_group
from expirebridge.task.methods import AsyncMethods, Methods, awaits, waits
from expirebridge.task.new_task import new_task
from expirebridge.task.operations.making import MakingOperations, functions_in, no_member
from expirebridge.task.task import Outcome, State, Task

if TYPE_CHECKING:
    from expirebridge.groups.calls import MakeGroupCode, MakeGroupReply
    from expirebridge.groups.values import Group, GroupListing
    from expirebridge.handlers import Then

_NOT_OF_FOLLOW_UPS = {
    "at": None,
    "id": None,
    "if_exists": "reject",
    "max_wait": None,
    "window": None,
}
"""Options of a `Then` that the follow-up of a group cannot have, and their defaults."""
_NOT_OF_MEMBERS = {"id", "if_exists", "max_wait", "window"}
"""Arguments of `make_task` that a member of a group cannot have."""


class GroupOperations(MakingOperations):
    """Make groups of tasks, with a follow-up that runs when all have ended."""

    def make_group(
        self,
        name: str,
        tasks: Iterable[Mapping[str, Any]] = (),
        *,
        then: "Then | None" = None,
        on_failed: OnFailed = "wait",
        close: bool = True,
    ) -> Steps["Group"]:
        """Make tasks that belong together, and `then` when all of them have ended.

        Each task is a mapping of `make_task`'s arguments by their names, without `id` and
        `if_exists`: the members are `<name>@g0`, `<name>@g1`, ... A group has at most 100,000.
        With `close=False` it stays open: `make_tasks(..., group=name)` adds members, also from the
        members' own handlers, until `close_group(name)`.

        The follow-up is an ordinary task, `<name>@then`, which is paused until the last member has
        ended, and due after its `delay` from then. It runs once, however often members run. If
        you resume it earlier, it runs earlier; if you cancel it, the group goes on without it.

        A member has ended when it has succeeded, or was cancelled. One that has failed: with
        `on_failed="wait"`, the group waits until it runs again and succeeds, or is purged, or the
        group is cancelled; with `"run"` it has ended; with `"cancel"` it cancels the group.

        A producer that died half-way repeats its call: what was made is not made again, even if it
        has ended and is forgotten. So is a group's name taken until a day after its end. Returns
        the group as it is now; if it was cancelled meanwhile, also by a member that failed, the
        rest is not made.

        Raises InvalidTask before anything is sent; GroupDiffers if the group was made with other
        tasks (their times may differ), another follow-up or `on_failed`; TaskExists if the id of
        the follow-up is taken; GroupIncomplete if the server lost members while they were made, as
        it can at a failover: the group is not closed, and the same call completes it; and what
        `make_tasks` raises.
        """
        check_group(name)
        if on_failed not in ON_FAILED:
            raise InvalidTask(f"on_failed={on_failed!r}: one of {', '.join(ON_FAILED)}")
        if not isinstance(close, bool):
            raise InvalidTask(f"close={close!r}: True or False")
        members = self._members(name, tasks)
        follow_up = self._follow_up(name, then)
        yield from self._before_making(
            functions_in([*members, *([follow_up] if follow_up else [])])
        )
        begun = yield from self._begin(name, on_failed, members, follow_up)
        if begun is not groups.calls.MakeGroupCode.MADE:
            group = yield from self._found(name)
            if group.closed:
                return group
        try:
            yield from self._make_members(name, 0, members)
        except GroupClosed:
            group = yield from self._found(name)
            if group.stopped is None:
                raise
            return group
        return (yield from self._close(name) if close else self._found(name))

    def close_group(self, name: str) -> Steps["Group"]:
        """Close a group: it takes no more members, and ends when all have ended.

        If they all have, its follow-up is due. Raises GroupNotFound; GroupIncomplete if it lacks
        members that `make_group` was to make, which is then to be called again; and InvalidTask for
        an illegal name.
        """
        return self._close(check_group(name))

    def cancel_group(self, name: str) -> Steps["Group"]:
        """Cancel a group: its follow-up at once, and then its members, 100 in each call.

        Running members are not attempted again. If this process dies on the way, the listeners go
        on. A group that has ended is left as it is. Raises GroupNotFound, and InvalidTask for an
        illegal name.
        """
        check_group(name)
        keep = self._settings.keep_succeeded
        while (
            yield from groups.calls.cancel_group(name, keep=keep)
        ) is groups.calls.Cancelling.MORE:
            pass
        return (yield from self._found(name))

    def get_group(self, name: str) -> Command["Group | None"]:
        """Return a group as it is now, or None. Raises InvalidTask for an illegal name.

        A group is forgotten a day after it has ended.
        """
        return groups.calls.get_group(check_group(name))

    def list_groups(self, *, limit: int = 100) -> Steps["GroupListing"]:
        """Return up to `limit` groups: those that have not ended, then those that ended last.

        Raises InvalidTask unless `limit` is a whole number, at least 1.
        """
        from expirebridge.groups.listing import find_groups  # noqa: PLC0415 - not for making tasks

        if type(limit) is not int or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        return find_groups(limit)

    def _add_members(self, group: str, items: Iterable[Mapping[str, Any]]) -> Steps[list[Task]]:
        """Make members of a group, under numbers that the server gives out."""
        new = self._members(check_group(group), items)
        yield from self._before_making(functions_in(new))
        made: dict[int, Task] = {}
        places: Sequence[int] = range(len(new))
        while places:
            first = yield from groups.calls.reserve_members(group, len(places))
            if isinstance(first, Obstacle):
                raise no_member(group, first)
            tasks = [
                new[place]._replace(id=member_id(group, first + position))
                for position, place in enumerate(places)
            ]
            made |= zip(places, (yield from self._make_members(group, first, tasks)), strict=True)
            # The server lost that a number was given out, and gave it to somebody else, too.
            places = [place for place in places if made[place].outcome is Outcome.KEPT]
        return [made[place] for place in range(len(new))]

    def _make_members(self, group: str, first: int, new: Sequence[NewTask]) -> Steps[list[Task]]:
        """Make members with the numbers from `first` on.

        Those that the server lost meanwhile, as it can at a failover, are made once more. Raises
        GroupIncomplete if it loses some then, too.
        """
        made = yield from self._make_all(new)
        missing = yield from self._count_missing(group, first, len(new))
        if missing:
            again = yield from self._make_all(new)
            made = [
                before if task.outcome is Outcome.KEPT else task
                for before, task in zip(made, again, strict=True)
            ]
            missing = yield from self._count_missing(group, first, len(new))
        if missing:
            raise GroupIncomplete(group, missing)
        return made

    def _count_missing(self, group: str, first: int, count: int) -> Steps[int]:
        """How many of so many members, which were made, are not there."""
        missing = yield from groups.calls.count_lacking(group, first, count)
        if missing is None:
            raise GroupNotFound(group)
        return missing

    def _members(self, group: str, tasks: Iterable[Mapping[str, Any]]) -> Sequence[NewTask]:
        """The tasks as the first members of a group. Raises InvalidTask."""
        items = list(tasks)
        if len(items) > MOST_MEMBERS:
            raise InvalidTask(f"group={group!r}: {len(items):,} tasks; at most {MOST_MEMBERS:,}")
        for position, item in enumerate(items):
            if isinstance(item, Mapping) and (given := _NOT_OF_MEMBERS & item.keys()):
                raise InvalidTask(
                    f"task {position}: {sorted(given)[0]}: leave it out; a member's id is its "
                    "group's name and its place"
                )
        return [
            task._replace(id=member_id(group, place), has_random_id=False, if_exists="keep")
            for place, task in enumerate(self._checked(items))
        ]

    def _begin(
        self,
        name: str,
        on_failed: OnFailed,
        members: Sequence[NewTask],
        follow_up: NewTask | None,
    ) -> Steps["MakeGroupCode"]:
        """Make the group unless it is there. Raises GroupDiffers and TaskExists."""
        digest = _digest_of(on_failed, members, follow_up)
        if follow_up is not None:
            follow_up = yield from self._writer.write(follow_up)
            self._announce([follow_up])
        begun = yield from groups.calls.make_group(
            name,
            on_failed=on_failed,
            definition=self._writer.definition(name, digest),
            count=len(members),
            follow_up=follow_up,
        )
        if begun.code is groups.calls.MakeGroupCode.DIFFERS:
            raise GroupDiffers(name)
        if begun.code is groups.calls.MakeGroupCode.TAKEN:
            raise TaskExists(name + FOLLOW_UP, "not finished")
        if follow_up is not None and begun.code is groups.calls.MakeGroupCode.MADE:
            self._made(follow_up, _reply_of(follow_up, begun))
            yield from self._after_making(follow_up.funcs)
        return begun.code

    def _close(self, name: str) -> Steps["Group"]:
        """Close the group; once more if the server lost that. Raises GroupIncomplete."""
        while True:
            missing = yield from groups.calls.close_group(name)
            if missing is None:
                raise GroupNotFound(name)
            if missing:
                raise GroupIncomplete(name, missing)
            group = yield from self._found(name)
            if group.closed:
                return group

    def _follow_up(self, name: str, then: "Then | None") -> NewTask | None:
        if then is None:
            return None
        if not isinstance(then, handlers.Then):
            raise InvalidTask(f"then={then!r:.60}: give a Then, such as Then(close, [order], '3d')")
        for option, default in _NOT_OF_FOLLOW_UPS.items():
            if (given := then.options.get(option, default)) != default:
                raise InvalidTask(
                    f"then: {option}={given!r}: a group's follow-up has a fixed id, and a delay "
                    "from when the last member has ended"
                )
        try:
            new = new_task(self._settings.tasks, self._writer, func=then.func, **then.options)
        except InvalidTask as error:
            raise InvalidTask(f"then: {error}") from None
        return new._replace(id=name + FOLLOW_UP, has_random_id=False)

    def _found(self, name: str) -> Steps["Group"]:
        group = yield from groups.calls.get_group(name)
        if group is None:
            raise GroupNotFound(name)
        return group


def _digest_of(on_failed: OnFailed, members: Sequence[NewTask], follow_up: NewTask | None) -> str:
    """A digest of what a group is made with, but for times."""
    digest = sha1(on_failed.encode(), usedforsecurity=False)
    for member in members:
        digest.update(repr((member.call, sorted(member.fields.items()))).encode())
    if follow_up is not None:
        fields = sorted(follow_up.fields.items())
        digest.update(repr((follow_up.call, follow_up.when, fields)).encode())
    return digest.hexdigest()


def _reply_of(follow_up: NewTask, begun: "MakeGroupReply") -> MakeReply:
    """The reply about a follow-up, as if `make_task` had made it."""
    return MakeReply(
        outcome=Outcome.CREATED, now=begun.now, due=begun.due, key=begun.key,
        call=follow_up.call, args=follow_up.args, state=State.PAUSED,
    )  # fmt: skip


class GroupMethods(Methods):
    """Make, steer and find groups, and wait for the server."""

    make_group = waits(GroupOperations.make_group)
    close_group = waits(GroupOperations.close_group)
    cancel_group = waits(GroupOperations.cancel_group)
    get_group = waits(GroupOperations.get_group)
    list_groups = waits(GroupOperations.list_groups)


class AsyncGroupMethods(AsyncMethods):
    """The same, awaited."""

    make_group = awaits(GroupOperations.make_group)
    close_group = awaits(GroupOperations.close_group)
    cancel_group = awaits(GroupOperations.cancel_group)
    get_group = awaits(GroupOperations.get_group)
    list_groups = awaits(GroupOperations.list_groups)

"""Operations on holds: keep all tasks of a function, or with a tag, from starting."""

import os
import socket
from datetime import datetime
from typing import TYPE_CHECKING

from expirebridge import limits
from expirebridge.errors import InvalidTask
from expirebridge.task import keys
from expirebridge.task.calls.call import Command, Steps
from expirebridge.task.durations import Duration, check_aware, seconds_of
from expirebridge.task.new_task import Named, name_of
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.task import to_ms

if TYPE_CHECKING:
    from expirebridge.limits.hold import Hold

LONGEST_TEXT = 1000
"""In characters: each claim reads the holds of the tasks that it looks at."""


class HoldingOperations(OperationGroup):
    """Put functions, tags or all tasks on hold, release them, and list the holds."""

    def hold(
        self,
        *,
        func: Named | None = None,
        tag: str | None = None,
        all: bool = False,
        reason: str = "",
        until: datetime | None = None,
        by: str | None = None,
    ) -> Steps[None]:
        """Put a function, a tag or all tasks on hold: those that are due wait, whoever makes them.

        Give `func`, a handler or its name, or `tag`, or `all=True`. Running tasks go on. The hold
        ends at `until`, an aware datetime, by the server's clock; without it, when it is released.
        `reason` and `by` have up to 1,000 characters and are shown by `holds`. `by` says who wants
        the hold: by default, the user and the host of this process. A new hold replaces an earlier
        one.

        Raises InvalidTask for a name or a tag that cannot be, for an `until` that has passed, and
        for a `reason` or a `by` that cannot be stored.
        """
        name = self._name_of(func, tag, all)
        ends = None if until is None else to_ms(check_aware(until, name="until"))
        well = yield from limits.hold_calls.put_hold(
            name,
            until=ends,
            reason=_checked(reason, name="reason"),
            by=_user() if by is None else _checked(by, name="by"),
        )
        if not well and until is not None:
            raise InvalidTask(f"until={until.isoformat()}: this time has passed")

    def release(
        self,
        *,
        func: Named | None = None,
        tag: str | None = None,
        all: bool = False,
        spread: Duration | None = None,
    ) -> Steps[bool]:
        """End the hold of a function, a tag or all tasks; return False if there was none.

        Its tasks are due, the first first: 100 at once, the others as fast as listeners let them
        go. With `spread`, a time, each is due at one of its own, evenly over that time from now on,
        as if it had been rescheduled. A task with another hold waits for the end of that one.
        Raises InvalidTask for a name or a tag that cannot be, and for a `spread` that is no time.
        """
        name = self._name_of(func, tag, all)
        over = 0.0 if spread is None else seconds_of(spread, name="spread")
        # Asked before, so that a release that is sent again has the same answer.
        was_there = any(one.name == name for one in (yield from limits.hold_calls.list_holds()))
        yield from limits.hold_calls.release_hold(name, spread=over)
        return was_there

    def holds(self) -> Command["list[Hold]"]:
        """Return the holds, by name, with those that other clients set."""
        return limits.hold_calls.list_holds()

    def _name_of(self, func: Named | None, tag: str | None, all: object) -> str:
        """The field of a hold in the hash `holds`."""
        given = (func is not None) + (tag is not None) + (all is not False)
        if given != 1:
            raise InvalidTask("give func, tag or all" + (", one of them" if given else ""))
        if all is not False:
            if all is not True:
                raise InvalidTask(f"all={all!r:.60}: give True, or leave it out")
            return limits.hold.ALL
        if func is not None:
            return f"func {name_of(func, self._settings.tasks)}"
        return f"tag {keys.check_tags([tag])[0]}"


def _checked(text: object, *, name: str) -> str:
    """Return a text unchanged. Raises InvalidTask if it cannot be stored."""
    shown = f"{name}={text!r:.60}"
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        raise InvalidTask(f"{shown}: give text of up to {LONGEST_TEXT:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidTask(f"{shown}: UTF-8 cannot encode it: {error.reason}") from None
    return text


def _user() -> str:
    """The user and the host of this process."""
    import getpass  # noqa: PLC0415 - not for making tasks

    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # containers run users who have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"

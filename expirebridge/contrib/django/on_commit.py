"""Makes tasks when a transaction of Django commits, or as rows of the ledger in it."""

import functools
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from expirebridge.bridge import prepare_task
from expirebridge.contrib.django.settings import LEDGER, SETTING, ledger_alias, ledger_url
from expirebridge.errors import InvalidTask
from expirebridge.task.durations import Duration
from expirebridge.task.new_task import Func
from expirebridge.task.options import TaskOptions

if TYPE_CHECKING:
    from expirebridge.ledger import Ledger


def make_task(
    func: Func,
    args: Sequence[Any] = (),
    delay: Duration | None = None,
    *,
    using: str | None = None,
    **options: Unpack[TaskOptions],
) -> None:
    """Make a task when the transaction commits; at once, if there is none.

    `using` is the alias of the database whose transaction that is: without it the ledger's, or
    "default". If EXPIREBRIDGE["LEDGER"] is this alias, the task is a row in the transaction, and
    cannot be lost. Otherwise it is made in Redis after the commit, and is lost if the process or
    Redis fails just then. Nothing is made if the transaction is rolled back. A `delay` counts from
    the INSERT of the row, or from the commit. All else is as in `Bridge.make_task`; with the ledger
    `if_exists` is "reject" or "replace", and there is no `max_wait`, `window` or `private`.

    Raises InvalidTask if the task cannot be, and without `using` if a transaction of another
    database than the ledger's is open: its rollback would not take the row along. With the ledger
    it also raises as `Ledger.make_task`; without it, what the server refuses, TaskExists included,
    is raised where the transaction commits: give `if_exists="keep"` or `"replace"` with an `id`.
    """
    ledger = ledger_alias()
    if using is None and ledger is not None:
        refuse_other_transactions(
            ledger,
            f"Give using={ledger!r} for a row that is committed at once, or using= with the other "
            "database for a task that is made in Redis after the commit",
        )
    alias = using or ledger or DEFAULT_DB_ALIAS
    if alias == ledger:
        # By its connection, which tells when it is committed.
        ledger_in(alias).make_task(connections[alias], func, args, delay, **_for_rows(options))
    else:
        transaction.on_commit(prepare_task(func, args, delay, **options), using=alias)


async def amake_task(
    func: Func,
    args: Sequence[Any] = (),
    delay: Duration | None = None,
    *,
    using: str | None = None,
    **options: Unpack[TaskOptions],
) -> None:
    """Do the same in async code: see `make_task`. Transactions of Django are never async."""
    await sync_to_async(make_task)(func, args, delay, using=using, **options)


def refuse_other_transactions(ledger: str, remedy: str) -> None:
    """Raise InvalidTask if the only open transactions are of other databases than the ledger's."""
    opened = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    if opened and ledger not in opened:
        others = ", ".join(map(repr, opened))
        raise InvalidTask(
            f"the open transaction is of {others}, and the ledger is in {ledger!r}: a rollback "
            f"would not take the task along. {remedy}; or begin a transaction of {ledger!r}, too"
        )


def ledger_in(alias: str) -> "Ledger":
    """The ledger in the database of this alias. Raises InvalidSetting if it can hold none."""
    return _ledger(ledger_url(alias))


@functools.cache
def _ledger(url: str) -> "Ledger":
    """The ledger at this URL: while tests run, an alias leads to another database."""
    from expirebridge.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy

    return Ledger(url)


def _for_rows(options: TaskOptions) -> dict[str, Any]:
    """The options of a task in the ledger. Raises InvalidTask for those that none can have."""
    from expirebridge.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy

    known = inspect.signature(Ledger.make_task).parameters
    for name in TaskOptions.__annotations__:
        if name in options and name not in known:
            raise InvalidTask(
                f"{name}: a task in the ledger cannot have it ({SETTING}[{LEDGER!r}])"
            )
    return dict(options)

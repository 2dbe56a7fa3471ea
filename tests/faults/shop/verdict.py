"""The verdict over a shop's tasks: what was promised stands in its own table, and in a history."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expirebridge import Change, State
from tests.faults.shop.terms import ATTEMPTS
from tests.kit.checker import Fault, Verdict, check
from tests.kit.history import Cancelled, Event, Made, now

STATES = {1: State.PENDING, 10: State.SUCCEEDED, 20: State.FAILED, 30: State.CANCELLED}


@dataclass(frozen=True, slots=True)
class Rows:
    """What the SQL database holds in the end."""

    tasks: Sequence[Any]
    effects: Sequence[str]
    """The id of each effect that a handler had in the transaction that completed its task."""
    orders: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """How a row says that its task ended."""

    state: State
    attempt: int
    error: str | None
    lapses: int = 0


def judge(events: Sequence[Event], rows: Rows, *, lease: float) -> Verdict:
    """Each order that is in the database has its task, and each task was treated as promised.

    What was committed was promised, whether its producer lived to write that down or not.
    """
    found = {id: Row(STATES[status], times + 1, text) for id, status, times, text in rows.tasks}
    orders = {id for id, _, _ in rows.orders}
    verdict = check(
        [*events, *_unwritten(events, rows)],
        {id: found.get(id) for id in orders},
        lease=lease,
        witnessed=set(rows.effects),
    )
    made = {event.id for event in events if isinstance(event, Made)}
    for what, ids in {
        "its order was acknowledged, and is gone": made - orders,
        "it has no order": found.keys() - orders,
    }.items():
        verdict.lost += [Fault(id, what, []) for id in ids]
    for id, times in Counter(rows.effects).items():
        if times > 1:
            verdict.unexplained.append(Fault(id, f"it had its effect {times} times", []))
    return verdict


def _unwritten(events: Sequence[Event], rows: Rows) -> list[Event]:
    """What was committed by a producer that was killed before it wrote that down."""
    made = {event.id for event in events if isinstance(event, Made)}
    cancelled = {event.id for event in events if isinstance(event, Cancelled)}
    orders = [Made(id=id, due=due, attempts=ATTEMPTS) for id, due, _ in rows.orders
              if id not in made]  # fmt: skip
    returns = [Cancelled(id=id, answer=Change.RUNNING, at=now()) for id, _, returned in rows.orders
               if returned and id not in cancelled]  # fmt: skip
    return [*orders, *returns]

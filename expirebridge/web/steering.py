"""What can be done to tasks: on one, or on all that match a filter."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from expirebridge.bridge import AsyncBridge
from expirebridge.durations import seconds_of
from expirebridge.errors import InvalidTask
from expirebridge.task import Change, State


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that can be done."""

    name: str
    label: str
    states: frozenset[State]
    """Where a task must stand for it to make sense."""
    takes_time: bool = False
    grave: bool = False
    """Whether it cannot simply be undone."""


_WAITING = frozenset({State.PENDING, State.PAUSED})

CHOICES = {
    choice.name: choice
    for choice in (
        Choice("run_now", "Run now", _WAITING),
        Choice("retry", "Retry", frozenset({State.FAILED})),
        Choice("run_again", "Run again", frozenset({State.SUCCEEDED, State.CANCELLED})),
        Choice("put_off", "Put off", _WAITING, takes_time=True),
        Choice("pause", "Pause", frozenset({State.PENDING})),
        Choice("resume", "Resume", frozenset({State.PAUSED})),
        Choice("cancel", "Cancel", _WAITING | {State.RUNNING}, grave=True),
    )
}


def actions_in(state: State | None) -> list[Choice]:
    """What can be done to tasks in this state; None: in any."""
    return [choice for choice in CHOICES.values() if state is None or state in choice.states]


@dataclass(frozen=True, slots=True)
class Order:
    """One of them, with the time that it takes."""

    choice: Choice
    by: float = 0.0

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> "Order":
        """Read a form, or a query. Raises InvalidTask for what cannot be."""
        choice = CHOICES.get(str(form.get("action", "")))
        if choice is None:
            raise InvalidTask(f"action: one of {', '.join(CHOICES)}")
        if not choice.takes_time:
            return cls(choice)
        return cls(choice, seconds_of(str(form.get("by", "")).strip(), name="by"))

    async def carry_out(self, bridge: AsyncBridge, ids: Sequence[str]) -> Mapping[Change, int]:
        """Do it to these tasks; says what became of how many."""
        match self.choice.name:
            case "cancel":
                return await bridge.cancel_all(ids)
            case "pause":
                return await bridge.pause_all(ids)
            case "resume":
                return await bridge.resume_all(ids)
            case "put_off":
                return await bridge.put_off_all(ids, self.by)
            case _:
                return Counter([await bridge.run_now(id) for id in ids])

"""The actions on tasks, on one or on all that match a filter, and those on one series."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from expirebridge.errors import InvalidTask
from expirebridge.model.durations import seconds_of
from expirebridge.model.series import check_series_id
from expirebridge.model.task import Change, State
from expirebridge.producer.bridge import AsyncBridge
from expirebridge.series.state import Series


@dataclass(frozen=True, slots=True)
class Choice:
    """An action."""

    name: str
    label: str
    states: frozenset[State]
    """The states of tasks for which it makes sense."""
    takes_time: bool = False
    grave: bool = False
    """Whether it is hard to undo."""


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
    """The actions on tasks in this state; None: in any state."""
    return [choice for choice in CHOICES.values() if state is None or state in choice.states]


@dataclass(frozen=True, slots=True)
class Order:
    """An action, with its duration if it takes one."""

    choice: Choice
    by: float = 0.0

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> "Order":
        """Read a form or a query. Raises InvalidTask for an invalid one."""
        choice = CHOICES.get(str(form.get("action", "")))
        if choice is None:
            raise InvalidTask(f"action: one of {', '.join(CHOICES)}")
        if not choice.takes_time:
            return cls(choice)
        return cls(choice, seconds_of(str(form.get("by", "")).strip(), name="by"))

    async def carry_out(self, bridge: AsyncBridge, ids: Sequence[str]) -> Mapping[Change, int]:
        """Carry the action out on these tasks; return how many had which result."""
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


SERIES_CHOICES = {"run": "Run now", "pause": "Pause", "resume": "Resume"}
"""The actions on a series, by the words of `expirebridge series`, and their labels."""


def actions_on(series: Series) -> dict[str, str]:
    """Those that make sense for a series as it is, with their labels."""
    left_out = "resume" if series.paused is None else "pause"
    return {name: label for name, label in SERIES_CHOICES.items() if name != left_out}


class Place(Protocol):
    """Where a series is: an AsyncBridge, or a ledger."""

    async def pause_series(self, id: str) -> Change:
        """Let a series make no ticks."""
        ...

    async def resume_series(self, id: str) -> Change:
        """Let a paused series go on."""
        ...

    async def run_series(self, id: str) -> object | None:
        """Make one more tick, due now; None if there is no such series."""
        ...


@dataclass(frozen=True, slots=True)
class SeriesOrder:
    """An action on one series."""

    name: str
    id: str

    @classmethod
    def read(cls, form: Mapping[str, str]) -> "SeriesOrder":
        """Read a form. Raises InvalidTask for an invalid one."""
        name, id = form.get("action", ""), check_series_id(form.get("id", "").strip())
        if name not in SERIES_CHOICES:
            raise InvalidTask(f"action: one of {', '.join(SERIES_CHOICES)}")
        return cls(name, id)

    async def carry_out(self, place: Place) -> Mapping[Change, int]:
        """Carry it out; return the result, as the actions on tasks do."""
        match self.name:
            case "pause":
                return {await place.pause_series(self.id): 1}
            case "resume":
                return {await place.resume_series(self.id): 1}
            case _:
                made = await place.run_series(self.id)
                return {Change.NOT_FOUND if made is None else Change.DUE_NOW: 1}

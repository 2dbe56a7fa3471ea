"""Why a task waits for a listener, or is stuck in one: which there are, and what they know."""

from collections import Counter
from dataclasses import dataclass

from expirebridge.fleet.operations import KnownFunctions
from expirebridge.settings import Settings
from expirebridge.task.calls import looking
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.calls.fleet import Fleet, read_fleet
from expirebridge.task.explaining import Explanations, Precedence, obstacle, reason, runs
from expirebridge.task.missing_ability import MissingAbility
from expirebridge.task.reason import Reason
from expirebridge.task.task import State
from expirebridge.task.texts import plural

_REMEDY = "expirebridge handlers --fleet"


def explain(found: Circumstances, settings: Settings) -> Steps[Explanations]:
    """Explain tasks that need a listener, or run in one: the listeners are asked for these only."""
    if found.task.state is State.RUNNING:
        fleet = yield from read_fleet(settings.lease)
        return {Precedence.BUSY: lambda now: _overran(now, fleet)}
    if not found.needs_listener:
        return {}
    fleet = yield from read_fleet(settings.lease)
    counts = yield from looking.count(settings.lease)
    listeners = _Listeners(fleet, counts.running)
    return {
        Precedence.IMPOSSIBLE: listeners.are_missing,
        Precedence.UNABLE: listeners.are_unable,
        Precedence.BUSY: listeners.are_full,
    }


@dataclass(frozen=True, slots=True)
class _Listeners:
    """The listeners, as far as a due task depends on them."""

    fleet: Fleet
    running: int
    """How many tasks run, in all."""

    def are_missing(self, found: Circumstances) -> Reason | None:
        """Nobody listens, or nobody has the function."""
        if not self.fleet.listeners:
            text = "no listener sends heartbeats"
            return obstacle(found, "no-listener", text, "expirebridge listen")
        func = found.task.func
        if why := KnownFunctions.of(self.fleet).why_unknown(func):
            text = f"its function {func} is missing: {why}"
            return obstacle(found, "unknown-function", text, _REMEDY)
        return None

    def are_unable(self, found: Circumstances) -> Reason | None:
        """No listener that claimed it had the function, or none that has it claims tasks."""
        func, at_work = found.task.func, self.fleet.claiming
        if found.is_put_off:
            return obstacle(
                found, MissingAbility.FUNCTION.value, f"no listener had {func}", _REMEDY
            )
        if not at_work.listeners or KnownFunctions.of(at_work).why_unknown(func):
            return obstacle(found, "idle", self._idle(func), _REMEDY)
        return None

    def _idle(self, func: str) -> str:
        whose = f" that has {func}" if self.fleet.claiming.listeners else ""
        listeners = self.fleet.listeners
        idle = Counter(one.idle for one in listeners if one.idle is not None)
        counted = ", ".join(f"{count} {word}" for word, count in sorted(idle.items()))
        overrun = next((id for one in listeners if one.idle for id in one.overruns), None)
        because = f"; {overrun} overran its timeout there" if overrun is not None else ""
        return f"no listener{whose} claims tasks: {counted}{because}"

    def are_full(self, found: Circumstances) -> Reason | None:
        """They run as many tasks as they can at once."""
        most = self.fleet.claiming.concurrency
        if most is None or self.running < most:
            return None
        running = plural(self.running, "task runs", "tasks run")
        text = f"the listeners are full: {running}, of at most {most:,}"
        return obstacle(found, "full", text, "expirebridge listen")


def _overran(found: Circumstances, fleet: Fleet) -> Reason | None:
    task = found.task
    if not any(task.id in one.overruns for one in fleet.listeners):
        return None
    text = (
        f"{runs(found)}; it overran its timeout and cannot be stopped: its listener claims no more "
        "once the grace time is over, and ends when its other tasks have ended"
    )
    return reason(found, "overrun", text, task.started, f"expirebridge cancel {task.id}")

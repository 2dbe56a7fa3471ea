"""docs/reference/states.md as a program: tasks and timers of a database after each operation.

Times are in seconds on the model's own clock, which stands still but for `advance`.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Concatenate, ParamSpec, TypeVar

from expirebridge import Change, Outcome, State
from expirebridge.settings import Settings
from expirebridge.task.calls.claiming import Settled
from expirebridge.task.calls.producing import Obstacle
from expirebridge.task.calls.reconciling import Adoption, EventKind

P = ParamSpec("P")
R = TypeVar("R")

NEVER = math.inf
"""The end of a timer without one."""

CHECK_PAUSED_AFTER = 300
UNKNOWN_TIMEOUT = 86400
MAX_LAPSES = 3
LAPSES_UNTIL_ALONE = 2

LIMITED = "sms.send"
"""The function whose handler has a limit: no more than one of its tasks runs at once."""


@dataclass(eq=False)
class Decision:
    """Which of two functions a task runs. All that has one id between two makes shares it."""

    on_signal: str | None = None
    """The function that a signal runs; None if nothing waits for one any longer."""
    passed: str | None = None
    """The same, once its deadline has decided."""
    lost: str | None = None
    """The call that a signal left behind."""
    said: tuple[str, str] | None = None
    """What that signal said, as JSON, and who had sent it."""

    def pass_deadline(self) -> None:
        """An attempt begins, or could have begun: the deadline decides, if nothing has."""
        self.passed = self.passed or self.on_signal
        self.on_signal = None

    def is_like(self, other: "Decision") -> bool:
        """True if a task that is asked for with the other one would wait for the same."""
        return (self.on_signal or self.passed) == other.on_signal

    def signal(self, call: str, said: tuple[str, str]) -> str:
        """A signal decides. Returns the call that is to run instead of this one."""
        assert self.on_signal is not None
        after = f"{self.on_signal}?{call.partition('?')[2]}"
        self.on_signal, self.lost, self.said = None, call, said
        return after


def is_of_nobody(said: tuple[str, str]) -> bool:
    """True if a signal does not say who sends it."""
    return not said[1]


@dataclass(frozen=True)
class New:
    """A task that is asked for."""

    call: str
    due: float
    tags: frozenset[str]
    ttl: float | None = None
    """Of a watched task: by how much each beat puts it off."""
    max_wait: float | None = None
    window: float | None = None
    first: float | None = None
    """Since when it has been put off with a limit."""
    decision: Decision = field(default_factory=Decision)


def key_of(id: str, new: New) -> str:
    """The name of its trigger key."""
    return f"{id}:?{new.call}"


def foreign_id(name: str) -> str:
    """The id of a foreign task whose own id belongs to another."""
    return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()


@dataclass
class Run:
    """What a task has behind it, and what was said while it ran. A new generation has none."""

    attempt: int = 0
    lapses: int = 0
    snoozes: int = 0
    due: float | None = None
    token: str | None = None
    settled: str | None = None
    wanted_at: float | None = None
    replacement: New | None = None
    cancelled: bool = False
    unknown_since: float | None = None
    began: float | None = None
    """When its latest attempt was claimed."""
    first: float | None = None
    first_is_of_this_run: bool = False
    """Whether it says when the putting off of a task began that was running, or had run."""


@dataclass
class Modelled:
    """One task."""

    key: str
    call: str
    tags: frozenset[str]
    state: State
    look_at: float
    left: float = 0
    ttl: float | None = None
    run: Run = field(default_factory=Run)
    decision: Decision = field(default_factory=Decision)
    has_slot: bool = False
    granted: float | None = None
    """When it was given a slot that it has not used yet."""
    in_line: float = 0
    """While it waits for a slot: its place in the queue, a time."""

    def free_slot(self) -> None:
        self.has_slot, self.granted = False, None


def serving(
    operation: Callable[Concatenate["Model", P], R],
) -> Callable[Concatenate["Model", P], R]:
    """An operation in whose end a slot that is free is granted to the first in line."""

    def served(model: "Model", /, *args: P.args, **options: P.kwargs) -> R:
        result = operation(model, *args, **options)
        model.serve()
        return result

    return served


class Model:
    """A database: tasks by id, and timers by their keys' names."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0.0
        self.tasks: dict[str, Modelled] = {}
        self.timers: dict[str, float] = {}
        self.last_beat = -math.inf
        self.queue: Callable[[], list[str]] = list
        """The server's queue. What is due at one time here may be some ms apart there."""

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.timers = {name: end for name, end in self.timers.items() if end > self.now}

    def state_of(self, id: str) -> State | None:
        return self.tasks[id].state if id in self.tasks else None

    def in_lane(self) -> set[str]:
        """The ids of tasks that have a slot."""
        return {id for id, task in self.tasks.items() if task.has_slot}

    def line(self) -> list[str]:
        """The ids of tasks that wait for a slot, in their order."""
        waiting = {id: task for id, task in self.tasks.items() if task.state is State.WAITING}
        queue = self.queue()
        # One that the server has granted its slot is there no longer.
        place = {id: queue.index(id) if id in queue else -1 for id in waiting}
        return sorted(waiting, key=lambda one: (waiting[one].in_line, place[one], one))

    def serve(self) -> None:
        """Grant a free slot to the first in line."""
        line = self.line()
        if line and not self.in_lane():
            task = self.tasks[line[0]]
            task.state, task.has_slot, task.granted = State.PENDING, True, self.now

    def owner_of(self, name: str) -> str | None:
        """The id of the task whose key it is."""
        return next((id for id, task in self.tasks.items() if task.key == name), None)

    # Producers

    @serving
    def make(self, id: str, new: New, if_exists: str) -> Outcome:
        task = self.tasks.get(id)
        if task is None or (task.state.finished and not self._ran_within(new.window, task)):
            self._create(id, self._limited(new, None))
            return Outcome.CREATED
        decision = (task.run.replacement or task).decision
        match if_exists:
            case "keep":
                return Outcome.KEPT
            case "replace":
                new = self._limited(new, task)
                self._replace(id, task, new)
                return Outcome.REPLACED
            case "extend" if decision.lost == new.call:
                return Outcome.KEPT
            case "extend" if (task.run.replacement or task).call == new.call and decision.is_like(
                new.decision
            ):
                new = self._limited(new, task)
                self._note(task, new)
                self._move(id, task, new.due)
                return Outcome.EXTENDED
            case _:
                return Outcome.REJECTED

    def _ran_within(self, window: float | None, task: Modelled) -> bool:
        began = task.run.began
        return window is not None and began is not None and self.now < began + window

    def _create(self, id: str, new: New) -> None:
        if id in self.tasks:
            self.timers.pop(self.tasks[id].key, None)
        self._write(id, new)

    def _write(self, id: str, new: New) -> None:
        key = key_of(id, new)
        self._take_over(key)
        self.tasks[id] = Modelled(key, new.call, new.tags, State.PENDING, new.due, ttl=new.ttl)
        self.tasks[id].run.first = new.first
        self.tasks[id].decision = new.decision
        self._set_timer(key, new.due)

    def _take_over(self, key: str) -> None:
        """A foreign task that has a key which another task needs makes way."""
        foreign = self.tasks.get(foreign_id(key))
        if foreign is not None and foreign.key == key:
            if foreign.state is State.RUNNING:
                foreign.key = f"{foreign_id(key)}:?{foreign.call}"
            else:
                del self.tasks[foreign_id(key)]

    def _limited(self, new: New, task: Modelled | None) -> New:
        """The new task, put off no further than it may be since the first such call."""
        if new.max_wait is None:
            return new
        first = None
        if task is not None and task.run.replacement:
            first = task.run.replacement.first
        elif task is not None and (task.run.began is None or task.run.first_is_of_this_run):
            first = task.run.first
        first = self.now if first is None else first
        return replace(new, first=first, due=min(new.due, first + new.max_wait))

    def _note(self, task: Modelled, new: New) -> None:
        """What `extend` changes beside the due time."""
        replacement = task.run.replacement
        if new.ttl is not None:
            if replacement:
                replacement = replace(replacement, ttl=new.ttl)
            else:
                task.ttl = new.ttl
        if new.first is not None:
            if replacement:
                replacement = replace(replacement, first=new.first)
            else:
                task.run.first = new.first
                task.run.first_is_of_this_run = task.run.began is not None
        task.run.replacement = replacement

    def _replace(self, id: str, task: Modelled, new: New) -> None:
        if task.state is not State.RUNNING:
            return self._create(id, new)
        self.timers.pop(task.key, None)
        if key_of(id, new) == task.key:
            self._set_timer(task.key, new.due)
        task.run.replacement, task.run.wanted_at, task.run.cancelled = new, None, False
        return None

    def _move(self, id: str, task: Modelled, due: float) -> None:
        if task.state is not State.RUNNING:
            self._wait(task, due)
        elif replacement := task.run.replacement:
            task.run.replacement = replace(replacement, due=due)
            if key_of(id, replacement) == task.key:
                self._set_timer(task.key, due)
        else:
            task.run.wanted_at, task.run.cancelled = due, False
            self._set_timer(task.key, due)

    def _wait(self, task: Modelled, due: float) -> None:
        """Make it pending. One that is due again at once keeps its slot."""
        if due > self.now or task.state is State.WAITING:
            task.free_slot()
        elif task.has_slot:
            task.granted = self.now
        task.state, task.look_at = State.PENDING, due
        self._set_timer(task.key, due)

    def _set_timer(self, name: str, due: float) -> None:
        if due > self.now:
            self.timers[name] = due
        else:
            self.timers.pop(name, None)

    @serving
    def cancel(self, id: str) -> Change:
        match self.tasks.get(id):
            case None:
                return Change.NOT_FOUND
            case Modelled(state=State.RUNNING) as task:
                run = task.run
                run.cancelled, run.wanted_at, run.replacement = True, None, None
                self.timers.pop(task.key, None)
                return Change.RUNNING
            case task if task.state.finished:
                return Change.FINISHED
            case task:
                self.timers.pop(task.key, None)
                self._finish(task, State.CANCELLED)
                return Change.CANCELLED

    def _finish(self, task: Modelled, state: State) -> None:
        kept = self.settings.keep_failed if state is State.FAILED else self.settings.keep_succeeded
        task.free_slot()
        task.state, task.look_at = state, self.now + kept

    @serving
    def reschedule(self, id: str, due: float) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        if task.state.finished:
            return Change.FINISHED
        self._move(id, task, due)
        return Change.REARMED if task.state is State.RUNNING else Change.MOVED

    @serving
    def put_off(self, id: str, seconds: float) -> Change:
        task = self.tasks.get(id)
        if task is not None and not task.state.finished and task.state is not State.RUNNING:
            end = self.timers.get(task.key)
            if end == NEVER:
                self._follow_timer(task)
                task.left += seconds
            elif end is None:
                due = self.now if task.state is State.PAUSED else task.look_at
                self._wait(task, due + seconds)
            else:
                self._wait(task, end + seconds)
        if task is None:
            return Change.NOT_FOUND
        return self._unless_busy(task, Change.MOVED)

    @serving
    def beat(self, id: str) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        if task.state.finished:
            return Change.FINISHED
        ttl = (task.run.replacement or task).ttl
        if ttl is None:
            return Change.NOT_WATCHED
        due = self.now + ttl
        if task.state is State.RUNNING:
            self._move(id, task, due)
            return Change.REARMED
        # The score follows when somebody looks, unless that would be too late.
        if task.state is not State.PENDING or due < task.look_at:
            self._wait(task, due)
        self._set_timer(task.key, due)
        return Change.MOVED

    @serving
    def run_now(self, id: str) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        if task.state is State.RUNNING:
            return Change.RUNNING
        if task.state is State.WAITING:
            return Change.WAITING
        if task.state.finished:
            task.run = Run(settled=task.run.token or task.run.settled)
            task.decision.pass_deadline()
        self._wait(task, self.now)
        return Change.DUE_NOW

    @serving
    def signal(self, id: str, said: tuple[str, str]) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        replacement = task.run.replacement
        decision = (replacement or task).decision
        if decision.said == said or (
            task.decision.said == said and not (replacement and is_of_nobody(said))
        ):
            return Change.SIGNALLED
        if decision.said is not None:
            return Change.SIGNALLED_BEFORE
        if decision.on_signal is None and not decision.passed:
            return Change.NOT_AWAITED
        if replacement:
            if key_of(id, replacement) == task.key:
                self.timers.pop(task.key, None)
            call = decision.signal(replacement.call, said)
            task.run.replacement = replace(replacement, call=call, due=self.now)
            return Change.SIGNALLED
        if task.state is State.RUNNING:
            return Change.RUNNING
        if task.state.finished:
            return Change.FINISHED
        if decision.passed:
            return Change.BEGUN
        self._swap(id, task, said)
        return Change.SIGNALLED

    def _swap(self, id: str, task: Modelled, said: tuple[str, str]) -> None:
        """Make it due with its other function; a paused one stays paused."""
        if task.key in self.timers:
            self._follow_timer(task)
        self.timers.pop(task.key, None)
        task.call = task.decision.signal(task.call, said)
        task.key = f"{id}:?{task.call}"
        self._take_over(task.key)
        task.free_slot()
        task.run.first = task.run.due = None
        if task.state is State.PAUSED:
            task.left = 0
            self.timers[task.key] = NEVER
        else:
            self.timers.pop(task.key, None)
            task.state, task.look_at = State.PENDING, self.now

    @serving
    def pause(self, id: str) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        if task.state in {State.PENDING, State.WAITING}:
            end = self.timers.get(task.key, NEVER) if task.state is State.PENDING else NEVER
            task.left = max((task.look_at if end == NEVER else end) - self.now, 0)
            task.free_slot()
            task.state, task.look_at = State.PAUSED, self.now + CHECK_PAUSED_AFTER
            self.timers[task.key] = NEVER
        return self._unless_busy(task, Change.PAUSED)

    @serving
    def resume(self, id: str) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        if task.state is State.PAUSED:
            end = self.timers.get(task.key, NEVER)
            self._wait(task, self.now + task.left if end == NEVER else end)
        return self._unless_busy(task, Change.RESUMED)

    @serving
    def edit(self, id: str, args: str) -> Change:
        task = self.tasks.get(id)
        if task is None:
            return Change.NOT_FOUND
        if task.state is State.RUNNING or task.state in {State.SUCCEEDED, State.CANCELLED}:
            return self._unless_busy(task, Change.EDITED)
        if task.state is not State.FAILED and task.key in self.timers:
            self._follow_timer(task)
        call = f"{task.call.partition('?')[0]}?{args}"
        self._rename_key(task, f"{id}:?{call}")
        task.call = call
        return Change.EDITED

    def _rename_key(self, task: Modelled, key: str) -> None:
        if key == task.key:
            return
        self._take_over(key)
        end = self.timers.pop(task.key, None)
        self.timers.pop(key, None)
        task.key = key
        if end is not None:
            self.timers[key] = end
        elif task.state is State.PENDING:
            self._set_timer(key, task.look_at)

    def _unless_busy(self, task: Modelled, change: Change) -> Change:
        if task.state is State.RUNNING:
            return Change.RUNNING
        return Change.FINISHED if task.state.finished else change

    # Other clients

    def raw_set(self, name: str, end: float) -> None:
        self.timers[name] = end

    def raw_expire(self, name: str, end: float) -> int:
        if name not in self.timers:
            return 0
        self.timers[name] = end
        return 1

    def raw_persist(self, name: str) -> int:
        if self.timers.get(name, NEVER) == NEVER:
            return 0
        self.timers[name] = NEVER
        return 1

    def raw_delete(self, name: str) -> int:
        return int(self.timers.pop(name, None) is not None)

    def raw_rename(self, name: str, other: str) -> bool:
        if name not in self.timers:
            return False
        self.timers[other] = self.timers.pop(name)
        return True

    # A listener

    @serving
    def hear(self, name: str, heard: EventKind) -> tuple[Adoption, str]:
        """What was heard of a key, and the id of its task."""
        id, _, call = name.partition(":?")
        other = foreign_id(name)
        named, own = self.tasks.get(id), self.tasks.get(other)
        if named is not None and named.key == name:
            return self._hear_of_known(id, named, name, heard), id
        if named is not None and named.decision.lost == call:
            self.timers.pop(name, None)
            return Adoption.KNOWN, id
        if own is not None and own.key != name:
            gave_up = own.call == call
            if gave_up and own.state is State.RUNNING:
                return Adoption.NOTHING, other
            if not (gave_up and own.state.finished):
                if named is None:
                    return self._hear_of_new(id, name, heard), id
                lives = self.timers.get(name, NEVER) != NEVER
                return (Adoption.TAKEN if lives else Adoption.NOTHING), other
        if own is not None:
            return self._hear_of_known(other, own, name, heard), other
        if named is None:
            return self._hear_of_new(id, name, heard), id
        # The end may be that of a key which the id's task had before.
        return self._hear_of_new(other, name, EventKind.LIVE), other

    def _hear_of_known(self, id: str, task: Modelled, name: str, heard: EventKind) -> Adoption:
        if not task.state.finished:
            self._hear_of_unfinished(task, heard)
            return Adoption.KNOWN
        due = self.timers.get(name, NEVER)
        if due == NEVER:
            return Adoption.KNOWN
        task.decision.pass_deadline()
        self.tasks[id] = Modelled(
            name, task.call, task.tags, State.PENDING, due, ttl=task.ttl, decision=task.decision
        )
        return Adoption.ADOPTED

    def _hear_of_new(self, id: str, name: str, heard: EventKind) -> Adoption:
        due = self.timers.get(name, self.now if heard is EventKind.EXPIRED else NEVER)
        if due == NEVER:
            return Adoption.NOTHING
        call = name.partition(":?")[2]
        self.tasks[id] = Modelled(name, call, frozenset(), State.PENDING, due)
        return Adoption.ADOPTED

    def _hear_of_unfinished(self, task: Modelled, heard: EventKind) -> None:
        end = self.timers.get(task.key)
        if task.state is State.RUNNING:
            if end is not None and end != NEVER:
                task.run.wanted_at = end
        elif end is not None or heard is EventKind.LIVE:
            self._follow_timer(task)
        elif task.look_at > self.now:  # otherwise its time has come anyhow
            if heard is EventKind.DELETED:
                self._finish(task, State.CANCELLED)
            else:
                task.state, task.look_at = State.PENDING, self.now

    def _follow_timer(self, task: Modelled) -> None:
        end = self.timers.get(task.key)
        if end == NEVER:
            if task.state in {State.PENDING, State.WAITING}:
                task.left = max(task.look_at - self.now, 0)
            task.free_slot()
            task.state, task.look_at = State.PAUSED, self.now + CHECK_PAUSED_AFTER
        elif end is not None:
            task.free_slot()
            task.state, task.look_at = State.PENDING, end

    @serving
    def scan(self) -> set[str]:
        """The names of which a scan says that nobody knows them."""
        found = set()
        for name, end in self.timers.items():
            task = self.tasks.get(name.partition(":?")[0])
            if task is None or task.key != name or task.state.finished:
                found.add(name)
            elif task.state in {State.PAUSED, State.WAITING} or (
                task.state is State.PENDING and (end == NEVER or end < task.look_at)
            ):
                self._follow_timer(task)
        return found

    @serving
    def claim(self, token: str, order: Iterable[str], *, places: int, idle: bool) -> list[str]:
        """Take due tasks. `order` are the pending ids as the server has them."""
        taken: list[str] = []
        is_alone, parked = False, True
        # A slot that this claim frees is granted in its end: until then it is not free.
        was_full = bool(self.in_lane())
        while parked and not is_alone and len(taken) < places:
            pending = [id for id in order if self.tasks[id].state is State.PENDING]
            due = [id for id in pending if self.tasks[id].look_at <= self.now]
            parked = False
            for id in due[:places]:
                if len(taken) == places:
                    break
                task = self.tasks[id]
                poison = task.run.lapses >= LAPSES_UNTIL_ALONE
                if task.key in self.timers:
                    self._follow_timer(task)
                elif self._park(task, was_full=was_full):
                    parked = True
                elif poison and (taken or not idle):
                    is_alone = True
                else:
                    self._take(task, token)
                    taken.append(id)
                    if poison:
                        is_alone = True
                        break
        return taken

    def _park(self, task: Modelled, *, was_full: bool) -> bool:
        """Let a due task wait, if it has no slot, and there is none for it."""
        is_limited = task.call.startswith(f"{LIMITED}?")
        if not is_limited or task.has_slot or not (was_full or self.in_lane() or self.line()):
            return False
        task.run.due = task.in_line = task.look_at
        task.state = State.WAITING
        return True

    def _take(self, task: Modelled, token: str) -> None:
        run = task.run
        due = task.look_at
        if task.has_slot and run.due is not None:
            due = min(due, run.due)
        run.attempt, run.due, run.token = run.attempt + 1, due, token
        run.began, run.first_is_of_this_run = self.now, False
        task.decision.pass_deadline()
        task.state, task.look_at = State.RUNNING, self.now + self.settings.lease
        task.has_slot, task.granted = task.call.startswith(f"{LIMITED}?"), None

    def holds(self, id: str, token: str) -> bool:
        task = self.tasks.get(id)
        return task is not None and task.state is State.RUNNING and task.run.token == token

    @serving
    def settle(self, id: str, token: str, outcome: str, delay: float) -> Settled:
        task = self.tasks.get(id)
        if not self.holds(id, token):
            run = task.run if task is not None else Run()
            if outcome == "retry" and task is not None and self._failed_by(task, token):
                return Settled.OVER  # as for a tick that was not retried, whose reply was lost
            known = run.settled == token or (
                run.token == token and task is not None and task.state.finished
            )
            return Settled.DONE if known else Settled.REFUSED
        assert task is not None
        if self._rearm(id, task):
            self.tasks[id].run.settled = token
        else:
            self._end_run(task, outcome, delay)
        return Settled.DONE

    def settle_then(
        self, id: str, token: str, next_id: str, new: New, if_exists: str
    ) -> tuple[Settled | Obstacle, Outcome | None]:
        """Settle a success, and make its follow-up: both, or neither."""
        if not self.holds(id, token):
            return self.settle(id, token, "succeeded", 0), None
        outcome = self.make(next_id, new, if_exists)
        if outcome is Outcome.REJECTED:
            return (Obstacle.DIFFERS if if_exists == "extend" else Obstacle.EXISTS), outcome
        return self.settle(id, token, "succeeded", 0), outcome

    @staticmethod
    def _failed_by(task: Modelled, token: str) -> bool:
        return task.run.token == token and task.state is State.FAILED

    def _end_run(self, task: Modelled, outcome: str, delay: float) -> None:
        run = task.run
        if run.cancelled and outcome not in {"succeeded", "failed"}:
            return self._finish(task, State.CANCELLED)
        if outcome == "unknown":
            run.unknown_since = self.now if run.unknown_since is None else run.unknown_since
            if self.now - run.unknown_since >= UNKNOWN_TIMEOUT:
                outcome = "failed"
        if outcome == "snoozed":
            run.snoozes += 1
        if outcome in {"succeeded", "retry", "snoozed"}:
            run.lapses, run.unknown_since = 0, None
        if outcome in {"succeeded", "failed"}:
            return self._finish(task, State(outcome))
        if outcome != "retry":
            run.attempt -= 1
        if outcome != "released":
            task.free_slot()
        again = run.due if outcome == "released" and not delay else self.now + delay
        assert again is not None
        run.settled, run.token = run.token, None
        return self._wait(task, again)

    def _rearm(self, id: str, task: Modelled) -> bool:
        """If it was asked, while the task ran, that it run once more: let it wait for that."""
        run, end = task.run, self.timers.get(task.key)
        if new := run.replacement:
            key = key_of(id, new)
            if key == task.key and end is not None and end != NEVER:
                new = replace(new, due=end)
            self._write(id, new)
            return True
        if end is None and run.wanted_at is None:
            return False
        task.free_slot()
        task.run = Run(first=run.first if run.first_is_of_this_run else None)
        if end is not None:
            task.left = 0
            self._follow_timer(task)
        else:
            assert run.wanted_at is not None
            self._wait(task, run.wanted_at)
        return True

    def nobody_beats(self) -> bool:
        return self.now - self.last_beat > self.settings.lease / 2

    def heartbeat(
        self, held: Iterable[tuple[str, str]]
    ) -> tuple[bool, list[str], list[tuple[str, str]]]:
        """Whether nobody had beaten for long, the ids that were lost, and the claims cancelled."""
        gap = self.nobody_beats()
        running = [task for task in self.tasks.values() if task.state is State.RUNNING]
        for task in running if gap else []:
            task.look_at = self.now + self.settings.lease
        self.last_beat = self.now
        lost: list[str] = []
        cancelled: list[tuple[str, str]] = []
        for id, token in held:
            if self.holds(id, token):
                self.tasks[id].look_at = self.now + self.settings.lease
                if self.tasks[id].run.cancelled:
                    cancelled.append((id, token))
            elif id not in self.tasks or token not in {
                self.tasks[id].run.token,
                self.tasks[id].run.settled,
            }:
                lost.append(id)
        return gap, lost, cancelled

    # The reconciler

    @serving
    def sweep(self, first: list[str]) -> tuple[set[str], set[str]]:
        """The ids that lapsed, and those that failed because they had lapsed too often.

        `first` are looked at first, in this order.
        """
        lapsed, failed = set(), set()
        order = dict.fromkeys([*first, *self.tasks])
        over = [(id, self.tasks[id]) for id in order if self.tasks[id].look_at <= self.now]
        for id, task in over:
            if task.state is State.PAUSED:
                self._look_at_paused(task)
            elif task.state.finished:
                del self.tasks[id]
            elif task.state is State.RUNNING and not self.nobody_beats():
                self._lapse(id, task)
                after = self.tasks[id].state
                if after is State.FAILED:
                    failed.add(id)
                elif after is not State.CANCELLED:
                    lapsed.add(id)
        self._take_back()
        return lapsed, failed

    def _take_back(self) -> None:
        """What nobody took for a lease, although it had its slot, waits again."""
        for task in self.tasks.values():
            if task.granted is not None and task.granted <= self.now - self.settings.lease:
                task.free_slot()
                assert task.run.due is not None
                task.state, task.look_at, task.in_line = State.WAITING, task.run.due, self.now

    def _look_at_paused(self, task: Modelled) -> None:
        if task.key in self.timers:
            self._follow_timer(task)
        else:
            task.state, task.look_at = State.PENDING, self.now

    def _lapse(self, id: str, task: Modelled) -> None:
        run = task.run
        run.token = None
        if self._rearm(id, task):
            return
        if run.cancelled:
            self._finish(task, State.CANCELLED)
            return
        run.lapses += 1
        if run.lapses == MAX_LAPSES:
            self._finish(task, State.FAILED)
            return
        run.attempt -= 1
        assert run.due is not None
        task.state, task.look_at = State.PENDING, run.due
        task.granted = self.now if task.has_slot else None

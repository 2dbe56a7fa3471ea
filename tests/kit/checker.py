"""Holds a history against what the product says of each task in the end, and gives a verdict.

What the product says is never enough: a task that it calls succeeded must have a run in the history
that returned, and one that it calls failed a reason there. And each run after the first needs a
reason that the test itself has seen or caused.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from expirebridge import Bridge, Change, LateCause, State, Task
from expirebridge.task.lateness import LATE
from tests.kit.history import (
    Cancelled,
    CutOff,
    Down,
    Ended,
    Event,
    Forgot,
    GaveUp,
    Killed,
    Known,
    Made,
    PutOff,
    Started,
    Stopped,
)

SETTLED_WITHIN = 1000
"""The ms within which an outcome is recorded after its handler's end, while the server answers. A
process that is killed later than that after a run's end is no reason to run the task again."""
TIMER_SLACK = 50
"""The ms by which a run may look shorter than its timeout, which begins before its first line."""
STARTED_WITHIN = 1000
"""The ms within which a handler's first statement follows on its claim: what was claimed before the
server forgot it, or before it was cancelled or put off, may start a moment afterwards."""
MAX_LAPSES = 3
"""The lapse after which a task is failed."""
UNKNOWN_SHARE = 0.01
"""How many of the late tasks may have begun late for an unknown cause."""
FORGOT = "forgotten by the server"
"""The reason of a run that follows on one of which the server knows nothing any longer."""
OUTDATED = "begun on a claim that was lost"
"""The reason of a run that a listener begins when it wakes up, although it has an heir."""
WORDS = {Killed: "killed", Stopped: "stopped", CutOff: "cut off"}
SHOWN = 10
"""Faults of each kind whose lines a verdict shows."""

Injection = Killed | Stopped | CutOff | Forgot


class Outcome(Protocol):
    """What the product says of a task in the end: the server, or a row of the ledger."""

    @property
    def state(self) -> State: ...
    @property
    def attempt(self) -> int: ...
    @property
    def lapses(self) -> int: ...
    @property
    def error(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """Why another attempt follows a run, if its policy allows one."""

    at: int
    reason: str
    words: str
    """What the product must report about it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call of a handler."""

    started: Started
    ended: Ended | None
    settled_by: int
    """The ms by which its outcome, if it had one, is recorded: when a listener that nothing hinders
    has reached a server that answers."""
    gave_up: GaveUp | None = None
    """The end of its process, if that ended by itself before the run did."""

    def failure(self, timeout: float | None) -> Failure | None:
        """How it failed, if it did: it raised, or took longer than its timeout."""
        if self.ended is None:
            return self._overrun(timeout)
        if self.ended.how == "raised":
            return Failure(self.ended.at, "retry", self.ended.error)
        if self.ended.how == "killed":
            return Failure(self.ended.at, "process killed", self.ended.error)
        took = self.ended.at - self.started.at
        if timeout is not None and took >= timeout * 1000 - TIMER_SLACK:
            return Failure(self.ended.at, "timeout", f"timed out after {timeout:g} s")
        return None

    def _overrun(self, timeout: float | None) -> Failure | None:
        """That it timed out, if its listener gave up because of that."""
        if self.gave_up is None or timeout is None:
            return None
        # Another listener may start the next attempt before this process has ended.
        at = self.started.at + int(timeout * 1000) - TIMER_SLACK
        words = f"timed out after {timeout:g} s and could not be stopped"
        return Failure(at, "overrun", words) if at <= self.gave_up.at else None


@dataclass(slots=True)
class Story:
    """What the history holds of one task; its runs in the order of their starts."""

    made: Made
    cancelled: Cancelled | None = None
    known: Known | None = None
    put_off: list[PutOff] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    outdated: list[Run] = field(default_factory=list)
    """Runs that a listener began when it woke up, on claims that it had lost by then."""

    @property
    def returned(self) -> bool:
        """Whether some run of it returned."""
        return any(run.ended and run.ended.how == "returned" for run in self.runs)

    def due_of(self, start: Started) -> int:
        """When a run was due, as far as was acknowledged before it was claimed."""
        known = [
            each
            for each in self.put_off
            if each.at <= start.at and not (each.running and _claimed_by(each.at, start))
        ]
        return max(known, key=lambda each: each.at).due if known else self.made.due

    def rearmed(self, start: Started, by: int) -> bool:
        """Whether it was put off while this run was at work: it runs once more then."""
        return any(
            each.running and each.at <= by and _claimed_by(each.at, start) for each in self.put_off
        )

    @property
    def lines(self) -> list[Event]:
        """The history's lines about it, in the order of time."""
        runs = [line for run in self.runs + self.outdated for line in (run.started, run.ended)]
        lines = [
            line for line in (self.made, self.cancelled, *self.put_off, *runs) if line is not None
        ]
        return sorted(lines, key=lambda line: line.at)


@dataclass(frozen=True, slots=True)
class Fault:
    """A task that was not treated as promised."""

    id: str
    what: str
    lines: list[Event]

    def __str__(self) -> str:
        return "\n    ".join([f"{self.id}: {self.what}", *map(str, self.lines)])


@dataclass(kw_only=True, slots=True)
class Verdict:
    """How the tasks of a history fared."""

    acknowledged: int = 0
    states: Counter[State] = field(default_factory=Counter)
    """How the tasks that are neither lost nor forgotten ended, or wait."""
    forgotten: int = 0
    """Tasks that are gone because the test made the server forget them."""
    lost: list[Fault] = field(default_factory=list)
    early: list[Fault] = field(default_factory=list)
    unexplained: list[Fault] = field(default_factory=list)
    """Runs for which the history shows no reason."""
    twice: Counter[str] = field(default_factory=Counter)
    """Runs after the first of their task, by reason."""
    longest_delay: int = 0
    """The most ms from a task's due time to its first start."""
    injections: list[Injection] = field(default_factory=list)
    kills: int = 0
    causes: Counter[LateCause] = field(default_factory=Counter)
    """Tasks whose last attempt began late, by what the product says was the cause."""
    uncaused: list[Fault] = field(default_factory=list)
    """Tasks that began late, and of which the product does not say why."""
    recoveries: list[int | None] = field(default_factory=list)
    """For each kill that hit a running handler, the ms until the last of the tasks that the process
    ran was started elsewhere; None if none of them was."""

    @property
    def sound(self) -> bool:
        """Whether every promise was kept."""
        unknown = self.causes[LateCause.UNKNOWN]
        explained = not self.uncaused and unknown <= max(self.causes.total() * UNKNOWN_SHARE, 1)
        return explained and not (self.lost or self.early or self.unexplained)

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        parts = [f"{self.acknowledged} acknowledged: {states or 'none finished'}"]
        if self.forgotten:
            parts.append(f"{self.forgotten} forgotten by the server, as the test made it")
        if self.causes:
            late = ", ".join(f"{count} {cause}" for cause, count in self.causes.most_common())
            parts.append(f"{self.causes.total()} late: {late}")
        for name in ("lost", "early", "unexplained", "uncaused"):
            faults: list[Fault] = getattr(self, name)
            if faults:
                parts.append(f"{len(faults)} {name.upper()}")
                parts += [f"  {fault}" for fault in faults[:SHOWN]]
        parts += [str(injection) for injection in self.injections]
        return "\n".join(parts)


def look_up(bridge: Bridge, events: Iterable[Event]) -> dict[str, Task | None]:
    """What the product says of each acknowledged task."""
    return {event.id: bridge.get(event.id) for event in events if isinstance(event, Made)}


def check(
    events: Sequence[Event],
    found: Mapping[str, Outcome | None],
    *,
    lease: float,
    may_wait: bool = False,
    may_forget: bool = False,
    witnessed: Container[str] = (),
) -> Verdict:
    """Judge every task that was acknowledged; of others nothing was promised.

    `found` is what `look_up` gave when nothing ran any longer. `lease` is the listeners', in
    seconds: a stop, or a cut, that is shorter is no reason to run a task again. With `may_wait` a
    task may still be pending or paused. With `may_forget` one that returned may be gone: only so
    many are kept. Those in `witnessed` are known to have succeeded, whether a run of them returned
    or not.

    Raises ValueError if the history contradicts itself.
    """
    stories = read_stories(events)
    injections = _injections_in(events, lease)
    verdict = Verdict(acknowledged=len(stories), injections=injections)
    for story in stories.values():
        task = found[story.made.id]
        _set_outdated_aside(story, injections)
        if not (task is None and may_forget and story.returned):
            is_done = story.returned or story.made.id in witnessed
            _judge_outcome(story, task, injections, verdict, may_wait=may_wait, is_done=is_done)
        _judge_runs(story, injections, verdict)
    _judge_kills(stories.values(), injections, verdict)
    return verdict


def judge_lateness(
    events: Sequence[Event], found: Mapping[str, Task | None], verdict: Verdict
) -> None:
    """Add the causes of late tasks to a verdict, and those that succeeded late without a cause."""
    for story in read_stories(events).values():
        task = found[story.made.id]
        if task is None:
            continue
        if task.late is not None:
            verdict.causes[task.late.cause] += 1
        elif task.state is State.SUCCEEDED and story.runs:
            delay = min(run.started.at - run.started.due for run in story.runs)
            if delay > LATE * 1000 + STARTED_WITHIN:
                what = f"it began {delay} ms late, and there is no cause"
                verdict.uncaused.append(Fault(story.made.id, what, story.lines))


def read_stories(events: Sequence[Event]) -> dict[str, Story]:
    """Sort the lines of a history by the acknowledged tasks."""
    stories: dict[str, Story] = {}
    for event in events:
        if isinstance(event, Made):
            if event.id in stories:
                raise ValueError(f"{event.id} was made twice")
            stories[event.id] = Story(event)
    for event in events:
        if isinstance(event, Cancelled) and event.id in stories:
            stories[event.id].cancelled = event
        elif isinstance(event, Known) and event.id in stories:
            stories[event.id].known = event
        elif isinstance(event, PutOff) and event.id in stories:
            stories[event.id].put_off.append(event)
    for run in _runs_in(events):
        if run.started.id in stories:
            stories[run.started.id].runs.append(run)
    return stories


def _runs_in(events: Sequence[Event]) -> list[Run]:
    ends: dict[str, Ended] = {}
    for event in events:
        if isinstance(event, Ended) and ends.setdefault(event.run, event) is not event:
            raise ValueError(f"run {event.run} of {event.id} ended twice")
    downs = sorted((event for event in events if isinstance(event, Down)), key=lambda down: down.at)
    gave_up = {event.pid: event for event in events if isinstance(event, GaveUp)}
    runs = []
    for event in events:
        if isinstance(event, Started):
            ended = ends.pop(event.run, None)
            if ended is None:
                runs.append(Run(event, None, 0, gave_up.get(event.pid)))
            else:
                runs.append(Run(event, ended, _settled_by(ended.at, downs)))
    if ends:
        raise ValueError(f"runs ended that never started: {list(ends.values())}")
    return sorted(runs, key=lambda run: run.started.at)


def _settled_by(ended: int, downs: Sequence[Down]) -> int:
    by = ended + SETTLED_WITHIN
    for down in downs:
        if ended < down.until and down.at <= by:
            by = down.until + SETTLED_WITHIN
    return by


def _injections_in(events: Sequence[Event], lease: float) -> list[Injection]:
    """What can cost a listener its leases, or the server its memory."""
    return [
        event
        for event in events
        if isinstance(event, Killed | Forgot)
        or (isinstance(event, Stopped | CutOff) and event.until - event.at >= lease * 1000)
    ]


# The outcome


def _judge_outcome(
    story: Story,
    task: Outcome | None,
    injections: Sequence[Injection],
    verdict: Verdict,
    *,
    may_wait: bool,
    is_done: bool,
) -> None:
    what = _wrong_outcome(story, task, injections, may_wait=may_wait, is_done=is_done)
    if task is None and _may_be_forgotten(story, injections):
        verdict.forgotten += 1
    elif what is not None:
        verdict.lost.append(Fault(story.made.id, what, story.lines))
    elif task is not None:
        verdict.states[task.state] += 1


def _wrong_outcome(
    story: Story,
    task: Outcome | None,
    injections: Sequence[Injection],
    *,
    may_wait: bool,
    is_done: bool,
) -> str | None:
    """What is wrong with the state in which a task ended, if anything is."""
    if task is None:
        return "there is no such task"
    asked = story.cancelled
    if asked and asked.answer == Change.CANCELLED and task.state is not State.CANCELLED:
        return f"it is {task.state} although its cancellation was acknowledged"
    match task.state:
        case State.SUCCEEDED:
            return None if is_done else "it succeeded, but no run of it returned"
        case State.FAILED:
            explained = _used_up(story, task) or _lapsed_too_often(story, task, injections)
            return (
                None if explained else f"it failed, without a reason in the history: {task.error}"
            )
        case State.CANCELLED:
            return None if asked else "it is cancelled, but nobody asked for that"
        case State.PENDING | State.WAITING | State.PAUSED if may_wait:
            return None
    return f"it is still {task.state}"


def _may_be_forgotten(story: Story, injections: Sequence[Injection]) -> bool:
    """Whether a task was acknowledged in a time of which the server may know nothing."""
    return any(
        isinstance(each, Forgot) and each.at <= story.made.at <= each.until for each in injections
    )


def _used_up(story: Story, task: Outcome) -> bool:
    """Whether the last attempt that its policy allows failed with what the product tells."""
    if not story.runs:
        return False
    last = story.runs[-1]
    failure = last.failure(story.made.timeout)
    return (
        failure is not None
        and last.started.attempt == task.attempt == story.made.attempts
        and failure.words in (task.error or "")
    )


def _lapsed_too_often(story: Story, task: Outcome, injections: Sequence[Injection]) -> bool:
    """Whether each of the lapses that failed a task is some injection's work.

    That its earlier runs were cut short is judged with the runs after them.
    """
    cut = not story.runs or _cut_short(story.runs[-1], injections) is not None
    possible = [injection for injection in injections if injection.until >= story.made.due]
    return task.lapses == MAX_LAPSES and cut and len(possible) >= MAX_LAPSES


# The runs


def _set_outdated_aside(story: Story, injections: Sequence[Injection]) -> None:
    """Take the outdated runs out of the chain in which each run is the reason of the next."""
    for place, run in reversed(list(enumerate(story.runs))):
        start = run.started
        overtaken = any(
            other.started.attempt == start.attempt and other.started.lapses > start.lapses
            for other in story.runs[:place]
        )
        if overtaken and any(_woke(start, each) for each in injections):
            story.outdated.append(story.runs.pop(place))


def _woke(start: Started, injection: Injection) -> bool:
    """Whether a run is the first thing that a listener did when it could go on.

    It had been claimed before, so it was due by then.
    """
    return (
        isinstance(injection, Stopped | CutOff)
        and injection.pid == start.pid
        and start.due <= injection.at
        and injection.until <= start.at <= injection.until + STARTED_WITHIN
    )


def _made_unheard(story: Story, start: Started, injections: Sequence[Injection]) -> bool:
    """Whether a run is of a call that a server answered to nobody and then forgot.

    Its producer sent the call again, and that was acknowledged: with a later due time.
    """
    return start.at < story.made.at and any(
        isinstance(each, Forgot) and each.at <= start.at <= each.until for each in injections
    )


def _judge_runs(story: Story, injections: Sequence[Injection], verdict: Verdict) -> None:
    for run in story.runs + story.outdated:
        start = run.started
        promised = start.due if _made_unheard(story, start, injections) else story.due_of(start)
        too_soon = max(promised, start.due) - start.at
        if too_soon > 0:
            what = f"started {too_soon} ms before it was due"
            verdict.early.append(Fault(start.id, what, story.lines))
    if story.outdated:
        verdict.twice[OUTDATED] += len(story.outdated)
    for place, run in enumerate(story.runs):
        start = run.started
        reason = _reason(story, place, injections)
        if story.known and start.at > story.known.at + STARTED_WITHIN:
            what = f"run {start.run} began although its row said that it had ended"
            verdict.unexplained.append(Fault(start.id, what, story.lines))
        elif reason is None:
            what = f"run {start.run} has no reason"
            verdict.unexplained.append(Fault(start.id, what, story.lines))
        elif place > 0:
            verdict.twice[reason] += 1
    if story.runs:
        first = story.runs[0].started
        delay = first.at - story.due_of(first)
        verdict.longest_delay = max(verdict.longest_delay, delay)


def _reason(story: Story, place: int, injections: Sequence[Injection]) -> str | None:
    """Why a run was started; None if the history does not tell.

    What the listener was told, attempt and lapses, must fit to what became of the run before. A
    lapse without a run (its listener was killed between claim and handler) needs an injection too.
    """
    start = story.runs[place].started
    before = story.runs[place - 1] if place > 0 else None
    if (
        story.cancelled
        and start.at > story.cancelled.at
        and not _claimed_before(story.cancelled, before, start)
    ):
        return None
    if before is None:
        fits, reason, lapses, since = start.attempt == 1, "due", start.lapses, story.made.due
    elif (
        (failure := before.failure(story.made.timeout))
        and failure.at <= start.at
        and start.attempt == before.started.attempt + 1
    ):
        fits, reason, lapses, since = True, failure.reason, start.lapses, failure.at
    elif start.attempt == 1 and story.rearmed(before.started, start.at):
        fits, reason, lapses, since = True, "put off", start.lapses, before.started.at
    elif cut := _cut_short(before, injections, start.at):
        # What cut it short may have come before its first statement, but not before its claim.
        lapses, since = start.lapses - before.started.lapses, before.started.due
        fits, reason = start.attempt == before.started.attempt and lapses > 0, cut
        if cut == FORGOT:  # the task is where it was some attempts ago
            fits = start.attempt <= before.started.attempt
    else:
        return None
    possible = [each for each in injections if each.until >= since and each.at <= start.at]
    return reason if fits and lapses <= len(possible) else None


def _claimed_by(at: int, start: Started) -> bool:
    """Whether a run can have been claimed by then: its first statement may follow a bit later."""
    return start.due <= at and start.at <= at + STARTED_WITHIN


def _claimed_before(cancelled: Cancelled, before: Run | None, start: Started) -> bool:
    """Whether a run that began after the cancellation can be the one that this found running.

    A retry that had been claimed by then was due after the end of the run before.
    """
    return (
        cancelled.answer == Change.RUNNING
        and _claimed_by(cancelled.at, start)
        and (before is None or before.ended is None or before.ended.at <= start.due)
    )


def _cut_short(run: Run, injections: Sequence[Injection], by: int | None = None) -> str | None:
    """How an injection, begun by then, kept a run's outcome from being recorded, if one did."""
    for injection in injections:
        if isinstance(injection, Forgot):
            claimed = run.started.at <= injection.until + STARTED_WITHIN
            unsettled = run.ended is None or run.settled_by >= injection.at
            if claimed and unsettled and (by is None or by >= injection.until):
                return FORGOT
            continue
        began_later = run.started.at > injection.until and not _woke(run.started, injection)
        if began_later or (by is not None and injection.at > by):
            continue
        if injection.pid != run.started.pid:
            continue
        word = WORDS[type(injection)]
        if run.ended is None or run.ended.at >= injection.at:
            return word
        if run.settled_by >= injection.at:
            return f"{word} before it was settled"
    return None


# The kills


def _judge_kills(
    stories: Iterable[Story], injections: Sequence[Injection], verdict: Verdict
) -> None:
    told = list(stories)
    for kill in injections:
        if isinstance(kill, Killed):
            verdict.kills += 1
            if victims := list(_victims(told, kill)):
                delays = [again.at - kill.at for again in victims if again is not None]
                verdict.recoveries.append(max(delays, default=None))


def _victims(stories: Iterable[Story], kill: Killed) -> Iterator[Started | None]:
    """For each run that a kill cut short, the next start of its task."""
    for story in stories:
        for place, run in enumerate(story.runs):
            if run.started.pid == kill.pid and run.ended is None:
                after = story.runs[place + 1 : place + 2]
                yield after[0].started if after else None

"""Calls for operators: live listeners, waiting tasks, the rights of the login."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from expirebridge.store.record_values import split_call, text, whole
from expirebridge.task.calls.call import (
    CHUNK,
    Anywhere,
    Argument,
    Command,
    Everywhere,
    Steps,
    ids_of,
    milliseconds,
    rows_of,
    script,
)
from expirebridge.task.calls.pages import BEGINNING
from expirebridge.task.keys import IN_RECORD
from expirebridge.task.lateness import LateCause
from expirebridge.task.missing_ability import MissingAbility
from expirebridge.task.objective import ObjectiveResult
from expirebridge.task.task import State


@dataclass(frozen=True, slots=True)
class Health:
    """The live listeners, and the tasks that wait."""

    overdue: int
    """Pending tasks whose time has passed."""
    waited: float
    """Seconds that the first of them has waited."""
    waiting: int
    """Tasks that wait for a slot, for a start of a rate, or for the end of a hold."""
    oldest_waiting: float
    """Seconds since the first of them was due."""
    listeners: list[str]
    """The live ones: `<host>:<pid>:<nonce>`."""


def read_health(lease: float) -> Command[Health]:
    """Read which listeners sent a heartbeat within `lease` seconds, and how long due tasks wait."""
    return script(
        "read_health", milliseconds(lease),
        read=lambda reply: Health(
            reply[0], reply[1] / 1000, reply[2], reply[3] / 1000, ids_of(reply[4:])
        ),
        route=Everywhere(_joined_health),
    )  # fmt: skip


def _joined_health(each: Sequence[Health]) -> Health:
    """A listener is at work if it sends heartbeats to every partition."""
    live = [
        name for name in each[0].listeners if all(name in other.listeners for other in each[1:])
    ]
    return Health(
        overdue=sum(one.overdue for one in each),
        waited=max(one.waited for one in each),
        waiting=sum(one.waiting for one in each),
        oldest_waiting=max(one.oldest_waiting for one in each),
        listeners=live,
    )


@dataclass(frozen=True, slots=True)
class Subscribers:
    """The numbers of listeners that are subscribed at the server of a partition."""

    doorbell: int
    """To its doorbell."""
    events: int
    """To the key events of the server."""


def count_subscribers() -> Command[Subscribers]:
    """Count them at the server of one partition: see `at_if_available`."""
    return script("count_subscribers", read=lambda reply: Subscribers(*reply))


@dataclass(frozen=True, slots=True)
class CountsBefore:
    """How many tasks of a state have a look-at time before each of some times."""

    now: int
    """The server's time, in ms."""
    total: int
    before: list[int]


def count_before(state: State, times: Iterable[int]) -> Command[CountsBefore]:
    """Count the tasks of a state that are looked at before each of these times, in ms."""
    return script(
        "count_before",
        state,
        *times,
        read=lambda reply: CountsBefore(reply[0], reply[1], list(reply[2:])),
        route=Everywhere(_joined_counts),
    )


def read_time() -> Command[int]:
    """Read the server's time, in ms; in a cluster that of any node that answers."""
    return script("count_before", State.PENDING, read=lambda reply: int(reply[0]), route=Anywhere())


def _joined_counts(each: Sequence[CountsBefore]) -> CountsBefore:
    before = [sum(counts) for counts in zip(*(one.before for one in each), strict=True)]
    return CountsBefore(each[0].now, sum(one.total for one in each), before)


STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 600_000)
"""The steps of lateness, in ms, as the tally counts them; see tally.lua."""


_MINUTES_AT_ONCE = 120


@dataclass(frozen=True, slots=True)
class Span:
    """How attempts ended in a span of time, and how late they had begun."""

    at: int
    """Its start, in ms."""
    succeeded: int = 0
    retried: int = 0
    failed: int = 0
    late: tuple[int, ...] = ()
    """Attempts by the steps of their lateness; one more is for those above the last."""
    causes: Mapping[LateCause, float] = field(default_factory=dict)
    """Seconds by which attempts began late, by cause."""
    objectives: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """By function and its objective in ms: how many attempts began within it, and how many not."""

    def quantile(self, fraction: float) -> float | None:
        """The step in ms to which this fraction of the attempts kept; None without any.

        Infinite if it was none of them.
        """
        total = sum(self.late)
        passed = 0
        for step, count in enumerate(self.late):
            passed += count
            if count and passed >= fraction * total:
                return STEPS[step] if step < len(STEPS) else math.inf
        return None


def read_tally(*, spans: int, minutes: int) -> Steps[list[Span]]:
    """See how attempts went in the last spans of so many minutes, the earliest first.

    Asked in parts: nothing else goes on in a server while a script reads a whole day.
    """
    found: dict[int, Span] = {}
    at_once = max(_MINUTES_AT_ONCE // minutes, 1)
    for skipped in range(0, spans, at_once):
        part = yield from script(
            "read_tally", min(at_once, spans - skipped), minutes, skipped,
            read=lambda reply: _spans(reply, minutes), route=Everywhere(_joined_spans),
        )  # fmt: skip
        found |= {span.at: span for span in part}
    # A span that ended meanwhile moves the others: one is read twice then, and the earliest is not.
    return [found[at] for at in sorted(found)]


def _spans(reply: Sequence[Any], minutes: int) -> list[Span]:
    last, *rows = reply
    return [
        _span((last - place * minutes) * 60_000, rows_of(row, 2)) for place, row in enumerate(rows)
    ][::-1]


def _joined_spans(each: Sequence[list[Span]]) -> list[Span]:
    """The spans of all partitions; one may have ended between two of them."""
    at: dict[int, list[Span]] = {}
    for span in (span for spans in each for span in spans):
        at.setdefault(span.at, []).append(span)
    return [_sum(at[when]) for when in sorted(at)]


def _sum(spans: Sequence[Span]) -> Span:
    late = tuple(sum(counts) for counts in zip(*(span.late for span in spans), strict=True))
    return Span(
        spans[0].at, sum(span.succeeded for span in spans), sum(span.retried for span in spans),
        sum(span.failed for span in spans), late, late_seconds(spans),
        objective_counts(spans),
    )  # fmt: skip


def _span(at: int, fields: Iterable[Sequence[Any]]) -> Span:
    """Read the counts. Fields that another version wrote are left out."""
    ended: Counter[str] = Counter()
    late = [0] * (len(STEPS) + 1)
    causes: dict[LateCause, float] = {}
    objectives: dict[tuple[str, int], tuple[int, int]] = {}
    for raw, count in fields:
        if text(raw) in _LATE_FIELDS:
            causes[_LATE_FIELDS[text(raw)]] = count / 1000
        elif found := _OBJECTIVE.fullmatch(text(raw)):
            kept, ms, func = found.groups()
            within, over = objectives.get((func, int(ms)), (0, 0))
            within, over = (count, over) if kept == "+" else (within, count)
            objectives[func, int(ms)] = (within, over)
        outcome, step = text(raw)[:1], text(raw)[1:]
        if step.isdigit() and 1 <= int(step) <= len(late):
            ended[outcome] += count
            late[int(step) - 1] += count
    return Span(at, ended["s"], ended["r"], ended["f"], tuple(late), causes, objectives)


_LATE_FIELDS = {f"l {cause}": cause for cause in LateCause}
_OBJECTIVE = re.compile(r"o ([+-])(\d{1,15}) (.+)", re.DOTALL)


def late_seconds(spans: Iterable[Span]) -> dict[LateCause, float]:
    """The seconds by which attempts began late in these spans, by cause, most first."""
    sums = defaultdict[LateCause, float](float)
    for span in spans:
        for cause, seconds in span.causes.items():
            sums[cause] += seconds
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def objective_counts(spans: Iterable[Span]) -> dict[tuple[str, int], tuple[int, int]]:
    """How many attempts began within their objective in these spans, and how many did not."""
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for span in spans:
        for key, (within, over) in span.objectives.items():
            before = sums.get(key, (0, 0))
            sums[key] = (before[0] + within, before[1] + over)
    return sums


def objective_results(spans: Iterable[Span]) -> list[ObjectiveResult]:
    """How functions kept to their objectives in these spans, the worst first."""
    results = [
        ObjectiveResult(func=func, seconds=ms / 1000, within=within, over=over)
        for (func, ms), (within, over) in objective_counts(spans).items()
    ]
    return sorted(results, key=lambda result: (result.share, result.func))


@dataclass(frozen=True, slots=True)
class LastBeat:
    """A listener, and the seconds since its last heartbeat."""

    name: str
    """`<host>:<pid>:<nonce>`."""
    ago: float
    """Seconds since its last heartbeat."""


def list_listeners(limit: int) -> Command[list[LastBeat]]:
    """List the listeners by their last heartbeat, the latest first; dead ones stay for a while."""
    return script(
        "list_listeners", limit,
        read=lambda reply: [
            LastBeat(text(name), ago / 1000) for name, ago in rows_of(reply, 2)
        ],
        route=Anywhere(),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unhandled:
    """Tasks that wait because no listener had their function, key or codec."""

    examined: int
    """How many tasks were looked at: those that are due next."""
    tasks: list[tuple[str, MissingAbility]]
    """The function of each task that was found, and what it waits for."""

    def functions(self, missing: MissingAbility) -> list[str]:
        """The function of each task that waits for this."""
        return [func for func, what in self.tasks if what is missing]


def find_unhandled(retried_every: float, *, limit: int) -> Command[Unhandled]:
    """Look for such tasks, which are tried again every so many seconds, among the first `limit`."""
    return script(
        "find_unhandled", milliseconds(retried_every), limit,
        read=lambda reply: Unhandled(
            reply[0],
            [(text(func), MissingAbility.of(text(why))) for func, why in rows_of(reply[1:], 2)],
        ),
        route=Everywhere(_joined_unhandled),
    )  # fmt: skip


def _joined_unhandled(each: Sequence[Unhandled]) -> Unhandled:
    tasks = [task for one in each for task in one.tasks]
    return Unhandled(sum(one.examined for one in each), tasks)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A part of the ids of one state, and those of them that begin as was asked for."""

    rank: int | None
    """The next position; None if there are no more."""
    examined: int
    ids: list[str]


def find_ids(
    state: State, beginning: str, *, rank: int, examine: int, find: int
) -> Command[SearchResult]:
    """Find up to `find` ids with this beginning among `examine` ids, from `rank` on."""
    return script(
        "find_ids", state, beginning, rank, examine, find,
        read=lambda reply: SearchResult(
            reply[0] if reply[0] >= 0 else None, reply[1], ids_of(reply[2:])
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FunctionSurvey:
    """The retries and the functions of the pending tasks that are due next."""

    examined: int
    """Number of tasks that were looked at."""
    retries: int
    """Number of them that wait for another attempt."""
    functions: list[str]
    """Their functions, each once."""
    on_signal: list[str]
    """Those that they run instead if they are signalled, each once."""


def survey_functions(limit: int) -> Command[FunctionSurvey]:
    """Count the retries among the first `limit` pending tasks, and list their functions."""
    return script(
        "survey_functions", limit,
        read=lambda reply: FunctionSurvey(
            reply[0], reply[1], [*map(text, reply[2])], [*map(text, reply[3])]
        ),
        route=Everywhere(_joined_surveys),
    )  # fmt: skip


def _joined_surveys(each: Sequence[FunctionSurvey]) -> FunctionSurvey:
    functions = dict.fromkeys(func for one in each for func in one.functions)
    on_signal = dict.fromkeys(func for one in each for func in one.on_signal)
    examined, retries = sum(one.examined for one in each), sum(one.retries for one in each)
    return FunctionSurvey(examined, retries, list(functions), list(on_signal))


def find_overwritten() -> Command[list[str]]:
    """Find the keys of ours in whose place another client put something of another type."""
    return script("find_overwritten", read=lambda names: [text(name) for name in names])


def find_refused(commands: Iterable[Sequence[Argument]]) -> Command[list[int] | None]:
    """Ask which of these commands the login may not send: their places, counted from 0.

    None if the server cannot be asked: Redis before 7.
    """
    words = [word for command in commands for word in (len(command), *command)]
    return script(
        "find_refused", *words,
        read=lambda reply: None if reply is None else [place - 1 for place in reply],
    )  # fmt: skip


# The call that reads what tasks are to call, to compare it with other code.


class StoredCall(NamedTuple):
    """The call of a task, as it is stored."""

    id: str
    func: str | None
    """None if its record cannot be read."""
    args: bytes
    due: int | None
    """In ms; None if it has no due time."""
    on_signal: str | None = None
    """The function that it calls instead if it is signalled, as long as it can be."""


@dataclass(frozen=True, slots=True)
class CallsPage:
    """A part of the tasks of one state."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    examined: int
    """How many tasks were looked at; some may be left out, see list_calls.lua."""
    calls: list[StoredCall]


def calls_page(state: State, cursor: str, *, until: int | None = None) -> Command[CallsPage]:
    """Read what the tasks of a state are to call, a page at a time; see list_calls.lua.

    `until` leaves out what has that score or a higher one: pending tasks due at that ms or later.
    """
    # An id that another client put there may be any bytes.
    score, behind, id = cursor.encode("latin-1").partition(b" ")
    limit = "+inf" if until is None else f"({until}"
    return script(
        "list_calls", state, score if behind else "", id, limit, CHUNK, read=_page
    )  # fmt: skip


def _page(reply: list[Any]) -> CallsPage:
    score, id, examined, *columns = reply
    cursor = BEGINNING if score is None else (score + b" " + id).decode("latin-1")
    return CallsPage(cursor, examined, [_stored(*row) for row in rows_of(columns, 5)])


def _stored(
    id: bytes, call: bytes | None, args: bytes | None, due: bytes | None, on_signal: bytes | None
) -> StoredCall:
    if call is None:
        return StoredCall(text(id), None, b"", None)
    func, inline = split_call(call)
    found = args if inline == IN_RECORD and args is not None else inline
    return StoredCall(
        text(id), func, found, whole(due) if due is not None else None,
        text(on_signal) if on_signal is not None else None,
    )  # fmt: skip

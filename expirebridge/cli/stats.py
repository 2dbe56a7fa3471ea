"""Commands that show the state of a database in numbers, and how recent tasks did."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from expirebridge.bridge import Operations
from expirebridge.cli.options import AsJson, Every, Prefix, Url
from expirebridge.cli.output import (
    arguments,
    left_out_as_data,
    moment,
    numbers_of,
    print_json,
    print_shown,
    show_live,
    table_of,
)
from expirebridge.connection import clients
from expirebridge.hooks import Hooks
from expirebridge.observe.recent_tasks import SAMPLE, RecentTasks, read_recent
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import inspection
from expirebridge.task.calls.inspection import Health
from expirebridge.task.durations import human, seconds_of
from expirebridge.task.lateness import LateCause, words_of
from expirebridge.task.listings import Counts, LeftOut, texts_of
from expirebridge.task.objective import TARGET, ObjectiveResult
from expirebridge.task.task import State, Task

SHOWN = 8
"""Most tasks that `top` shows in each of its lists: running, waiting, failed."""
HOUR = 60
"""Minutes for which the causes of lateness are summed."""
ALL_TASKS = "all tasks:"
RECENT_TASKS = f"the last {SAMPLE} that succeeded, and the last {SAMPLE} that failed:"
OBJECTIVES = f"objectives in the last hour, {TARGET:.0%} of the tasks are to keep to them:"
LATE = "tasks that began late in the last hour, by so much in all:"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFigures:
    """A database in numbers."""

    counts: Counts
    health: Health
    next: list[Task]
    running: list[Task]
    recent: RecentTasks
    late: dict[LateCause, float]
    """Seconds by which tasks began late in the last hour, by cause."""
    objectives: list[ObjectiveResult]
    """How functions kept to their objectives in the last hour."""
    partitions: list[Counts]
    """The counts of each, if there are several."""
    left_out: tuple[LeftOut, ...]


def read(store: Partitions, settings: Settings) -> DatabaseFigures:
    """Read the numbers. Raises a ServerError."""
    operations = Operations(settings, Hooks())
    counts = store.run(operations.count())
    several = store.layout.count > 1
    hour = store.run(inspection.read_tally(spans=HOUR, minutes=1))
    return DatabaseFigures(
        counts=counts,
        health=store.run(inspection.read_health(settings.lease)),
        next=store.run(operations.list(state=State.PENDING, limit=SHOWN)).tasks,
        running=store.run(operations.list(state=State.RUNNING, limit=SHOWN)).tasks,
        recent=store.run(read_recent(operations)),
        late=inspection.late_seconds(hour),
        objectives=inspection.objective_results(hour),
        partitions=store.run(operations.list_partitions()) if several else [],
        left_out=store.left_out,
    )


def stats(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show totals once, and how recent tasks of each function did.

    Recent tasks are the last 200 that succeeded, and the last 200 that failed, by function. If
    tasks began late in the last hour, their lateness is summed by cause. Of functions that have an
    objective, @handler(late="1s"), the share of attempts that kept to it is shown.

    Example: expirebridge stats

    Example: expirebridge stats --json | jq '.functions["mail.send"].failed'
    """
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store:
        figures = read(store, settings)
    if as_json:
        return print_json(_as_data(figures))
    return print_shown(
        Group(
            Text(ALL_TASKS), *_totals(figures),
            Text(), Text(RECENT_TASKS), _pace(figures), _functions(figures),
            *([Text(), Text(LATE), _causes(figures)] if figures.late else []),
            *([Text(), Text(OBJECTIVES), _objectives(figures)] if figures.objectives else []),
        )
    )  # fmt: skip


def top(
    every: Every = "2s",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Watch stats live, with the tasks that run, come and failed.

    It runs until Ctrl-C; in a pipe it shows them once.

    Example: expirebridge top --every 1s
    """
    settings = Settings.read(url=url, prefix=prefix)
    seconds = seconds_of(every, name="every")
    with closing(store_of(settings)) as store:

        def server() -> str:
            return clients.shown_server(settings.url, store.client)

        if as_json:
            return print_json(_as_data(read(store, settings)))
        return show_live(lambda: _screen(read(store, settings), server()), seconds)


def store_of(settings: Settings) -> Partitions:
    """A store for a command that only reads."""
    return Partitions(
        clients.producer_client(settings.url, settings.prefix), prefix=settings.prefix
    )


def probe_store_of(settings: Settings) -> Partitions:
    """A store for a command that examines the server."""
    return Partitions(clients.probe_client(settings.url, settings.prefix), prefix=settings.prefix)


# As data


def _as_data(figures: DatabaseFigures) -> dict[str, Any]:
    return {
        "states": numbers_of(figures.counts),
        "oldest_overdue": figures.health.waited,
        "oldest_waiting": figures.health.oldest_waiting,
        "listeners": figures.health.listeners,
        "ended_per_minute": round(figures.recent.per_minute, 1),
        "lateness": {"p50": figures.recent.lateness(0.5), "p99": figures.recent.lateness(0.99)},
        "late_last_hour": {str(cause): round(late, 3) for cause, late in figures.late.items()},
        "objectives": [
            asdict(one) | {"share": one.share, "burn_rate": one.burn_rate}
            for one in figures.objectives
        ],
        "next_due": figures.next[0].due if figures.next else None,
        "running": [task.id for task in figures.running],
        "functions": {name: asdict(one) for name, one in figures.recent.functions().items()},
        **({"partitions": list(map(numbers_of, figures.partitions))} if figures.partitions else {}),
        **left_out_as_data(figures.left_out),
    }


# For people


def _totals(figures: DatabaseFigures) -> list[Text]:
    counts, health = figures.counts, figures.health
    states = "   ".join(f"{state} {asdict(counts)[state]:,}" for state in State)
    waits = f", the first for {human(health.waited)}" if counts.overdue else ""
    overdue = [
        f"{number}: {one.overdue:,}" for number, one in enumerate(figures.partitions) if one.overdue
    ]
    return [
        Text(states),
        Text(f"overdue {counts.overdue:,}{waits}", style="red" if health.waited > 30 else ""),
        *([Text(_waiting(health))] if health.waiting else []),
        Text(f"listeners {counts.listeners}", style="" if counts.listeners else "red"),
        *([Text(f"overdue in partition {', '.join(overdue)}")] if overdue else []),
        *([Text(f"moving {counts.moving.way}")] if counts.moving else []),
        *(Text(f"left out: {text}", style="red") for text in texts_of(figures.left_out)),
    ]


def _waiting(health: Health) -> str:
    return f"waiting {health.waiting:,}, the first for {human(health.oldest_waiting)}"


def _pace(figures: DatabaseFigures) -> Text:
    late = "   ".join(
        f"p{fraction * 100:.0f} {_human(figures.recent.lateness(fraction))}"
        for fraction in (0.5, 0.99)
    )
    return Text(f"ended {figures.recent.per_minute:,.0f} a minute   late {late}")


def _functions(figures: DatabaseFigures) -> RenderableType:
    return table_of(
        ("function", "succeeded", "failed", "late, p99", "takes, p99"),
        [
            (name, str(one.succeeded), str(one.failed), _human(one.lateness), _human(one.duration))
            for name, one in figures.recent.functions().items()
        ],
    )


def _causes(figures: DatabaseFigures) -> RenderableType:
    return table_of(
        ("cause", "late"),
        [(words_of(cause), human(seconds)) for cause, seconds in figures.late.items()],
    )


def _objectives(figures: DatabaseFigures) -> RenderableType:
    return table_of(
        ("function", "late at most", "began", "within", "burn rate"),
        [
            (
                one.func, f"{one.seconds:g} s", f"{one.within + one.over:,}", f"{one.share:.2%}",
                f"{one.burn_rate:.1f}",
            )
            for one in figures.objectives
        ],
    )  # fmt: skip


def _screen(figures: DatabaseFigures, server: str) -> RenderableType:
    """The screen of `top`."""

    def titled(title: str, rows: Sequence[tuple[str, ...]], *columns: str) -> list[RenderableType]:
        shown = table_of(columns, rows) if rows else Text("none", style="dim")
        return [Text(), Text(title, style="bold reverse"), shown]

    def start(task: Task) -> tuple[str, str, str]:
        return (task.id, task.func, arguments(task))

    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Group(
        Text(f"{server}   {at}", style="bold"),
        *_totals(figures),
        _pace(figures),
        *titled(
            "running now",
            [(*start(task), moment(task.started) or "") for task in figures.running],
            "id", "function", "arguments", "started",
        ),
        *titled(
            "next due",
            [(*start(task), moment(task.due) or "") for task in figures.next],
            "id", "function", "arguments", "due",
        ),
        *titled(
            "failed last",
            [
                (*start(task), moment(task.ended) or "", (task.error or "").rpartition("\n")[2])
                for task in figures.recent.failed[:SHOWN]
            ],
            "id", "function", "arguments", "failed", "error",
        ),
        *titled("listeners", [(name,) for name in figures.health.listeners], "name"),
        Text(),
        Text(RECENT_TASKS, style="bold reverse"),
        _functions(figures),
        *([Text(), Text(LATE, style="bold reverse"), _causes(figures)] if figures.late else []),
    )  # fmt: skip


def _human(seconds: float | None) -> str:
    return "" if seconds is None else human(max(seconds, 0))

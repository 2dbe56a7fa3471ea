"""The command that says how many listeners the next minutes need."""

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from expirebridge.bridge import Operations
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import left_out_as_data, moment, print_json, print_line, warn_of
from expirebridge.cli.stats import store_of
from expirebridge.hooks import Hooks
from expirebridge.lateness.scaling import Scale, read_scale
from expirebridge.settings import Settings
from expirebridge.task.durations import human, seconds_of
from expirebridge.task.texts import plural


def scale(
    ahead: Annotated[str, typer.Option(metavar="DURATION", help="How far to look ahead.")] = "5m",
    within: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long after its due time a task may begin: what is due in one such span is to "
            "be begun in it.",
        ),
    ] = "10s",
    concurrency: Annotated[
        int,
        typer.Option(min=1, help="How many tasks a listener runs at once: its own --concurrency."),
    ] = Settings.concurrency,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Show how many listeners the next minutes need, from what will be due in them.

    It multiplies what comes due by how long the handlers of each function took lately, and adds
    what runs, what is overdue, and what was made at short notice in the last minute.

    Example: expirebridge scale --ahead 10m --concurrency 20

    Example: expirebridge scale --json | jq .listeners
    """
    settings = Settings.read(url=url, prefix=prefix)
    asked = read_scale(
        Operations(settings, Hooks()),
        concurrency=concurrency,
        ahead=seconds_of(ahead, name="ahead"),
        within=seconds_of(within, name="within"),
    )
    with closing(store_of(settings)) as store:
        found = store.run(asked)
        left_out = store.left_out
    if as_json:
        return print_json(asdict(found) | left_out_as_data(left_out))
    warn_of(left_out)
    return _print(found)


def _print(found: Scale) -> None:
    print_line(
        f"{plural(found.listeners, 'listener', 'listeners')}, each of "
        f"{plural(found.concurrency, 'task', 'tasks')} at once"
    )
    print_line(
        f"most is needed from {moment(found.peak)} on: "
        f"{plural(found.peak_tasks, 'task', 'tasks')} in "
        f"{human(found.within)}, which take {found.peak_slots:,.1f} places"
    )
    print_line(
        f"running {found.running:,}, overdue {found.overdue:,}, "
        f"made at short notice {found.short_notice:,.1f} a second"
    )
    if found.unmeasured:
        print_line(f"not known how long they take: {' '.join(found.unmeasured)}")

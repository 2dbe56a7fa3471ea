"""The command that shows how many tasks come due."""

import math
from contextlib import closing
from typing import Annotated, Any

import typer

from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import left_out_as_data, print_json, print_table, warn, warn_of
from expirebridge.cli.stats import store_of
from expirebridge.errors import InvalidTask
from expirebridge.lateness import calls
from expirebridge.lateness.calls import Forecast
from expirebridge.settings import Settings
from expirebridge.task.absence import what_is_elsewhere
from expirebridge.task.durations import human, seconds_of
from expirebridge.task.task import from_ms

MOST_SPANS = 240
LOOKS = 480
"""Tasks that a forecast examines: about two milliseconds of the server's time."""
BAR = 40


def forecast(
    span: Annotated[
        str,
        typer.Option(
            "--per", metavar="DURATION", help="The length of time of each bar: 1m, 15m, 1h."
        ),
    ] = "5m",
    length: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How far to look ahead.")
    ] = "2h",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Show how many tasks come due, as a bar for each span of time.

    The counts are exact with one exception: a task that a plain EXPIRE put off is counted at its
    old due time until that has passed. The share of each function is estimated from a few hundred
    tasks. Tasks that are due already are in no bar: they are overdue, or wait for a slot, for a
    start of a rate, or for the end of a hold. One that waits for a signal counts for the function
    of its deadline.

    Example: expirebridge forecast --per 1h --for 1d
    """
    width, ahead = seconds_of(span, name="per"), seconds_of(length, name="for")
    spans = math.ceil(ahead / width) if width >= 0.001 else 0
    if not 1 <= spans <= MOST_SPANS:
        raise InvalidTask(f"--per {span} --for {length}: that must give 1 to {MOST_SPANS} bars")
    settings = Settings.read(url=url, prefix=prefix)
    with closing(store_of(settings)) as store:
        call = calls.forecast(width, spans, sample=max(LOOKS // spans, 1))
        coming = store.run(call)
        left_out = store.left_out
        elsewhere = store.run(what_is_elsewhere(due_within=width * spans))
    for sentence in elsewhere:
        warn(sentence)
    if as_json:
        return print_json(_forecast_as_data(coming) | left_out_as_data(left_out))
    warn_of(left_out)
    return _print_bars(coming)


def _forecast_as_data(coming: Forecast) -> dict[str, Any]:
    return {
        "now": from_ms(coming.now),
        "overdue": coming.overdue.count,
        "waiting": coming.waiting,
        "later": coming.later,
        "series": coming.series,
        "spans": [
            {"start": from_ms(span.start), "count": span.count, "functions": span.by_function()}
            for span in coming.spans
        ],
    }


def _print_bars(coming: Forecast) -> None:
    most = max(span.count for span in coming.spans)
    rows = []
    for span in coming.spans:
        bar = "█" * math.ceil(span.count * BAR / most) if most else ""
        functions = "  ".join(f"{func} {count:,}" for func, count in span.by_function().items())
        start = from_ms(span.start).isoformat(timespec="seconds").replace("+00:00", "Z")
        relative = human((span.start - coming.now) / 1000) if span.start > coming.now else "now"
        rows.append((start, relative, f"{span.count:,}", bar, functions))
    print_table(("from", "in", "tasks", "", "functions"), rows)
    typer.echo(
        f"overdue {coming.overdue.count:,}, waiting {coming.waiting:,}, later {coming.later:,}"
    )
    if coming.series:
        typer.echo(f"of {coming.series:,} series only the next tick is counted")

"""The command that shows how many tasks come due."""

import math
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Annotated, Any, Protocol, cast

import typer

from expirebridge.capabilities import given
from expirebridge.cli.options import AsJson, Prefix, Url
from expirebridge.cli.output import left_out_as_data, print_json, print_table, warn, warn_of
from expirebridge.cli.stats import store_of
from expirebridge.errors import InvalidTask, LedgerError
from expirebridge.lateness import calls
from expirebridge.lateness.calls import Forecast
from expirebridge.settings import Settings
from expirebridge.task.absence import what_is_elsewhere
from expirebridge.task.calls.call import milliseconds
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

    With a ledger, in EXPIREBRIDGE_LEDGER, rows count that are kept back in SQL until they come
    near; those that are due after the last bar do not.

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
        with_rows = _with_rows(coming, settings, milliseconds(width))
        missing = [] if with_rows else store.run(what_is_elsewhere(due_within=width * spans))
    for sentence in missing:
        warn(sentence)
    coming = with_rows or coming
    if as_json:
        return print_json(_forecast_as_data(coming) | left_out_as_data(left_out))
    warn_of(left_out)
    return _print_bars(coming)


class Foresees(Protocol):
    """The module `forecast` of a capability that keeps tasks beside Redis."""

    def count_coming(
        self, settings: Settings, *, start: int, width: int, spans: int
    ) -> list[Counter[str]] | None:
        """Count those of each function in each span of so many ms; None if there is no such place.

        Raises a LedgerError if it cannot be asked.
        """


def _with_rows(coming: Forecast, settings: Settings, width: int) -> Forecast | None:
    """Return the forecast with what is not in Redis yet; None if that is not known."""
    start, spans = coming.spans[0].start, len(coming.spans)
    for one in cast("tuple[Foresees, ...]", given("forecast")):
        try:
            found = one.count_coming(settings, start=start, width=width, spans=spans)
        except LedgerError as error:
            warn(str(error))
            return None
        if found is not None:
            joined = [
                replace(span, count=span.count + rows.total(), beside=rows)
                for span, rows in zip(coming.spans, found, strict=True)
            ]
            return replace(coming, spans=joined)
    return None


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

"""Draws the plots of docs/performance.md."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.lab.records import Records, Row

mpl.use("svg")
# The same results give the same files.
mpl.rcParams |= {"svg.hashsalt": "expirebridge", "font.size": 9}

from matplotlib import pyplot as plt  # noqa: E402 - after the choice of what it draws

COLOURS = {"ours": "#c0392b", "peer": "#5d7fa3", "baseline": "#7f8c8d", "limit": "#bdc3c7"}


def draw(records: Records, folder: Path) -> None:
    """Draw all that there are figures for."""
    pending = [("nothing else pending", records.rows("lateness"))]
    pending += [
        (f"{others:,} others pending", records.rows("lateness_pending", pending=others))
        for others in records.variants("lateness_pending", "pending")
    ]
    _draw_lateness([panel for panel in pending if panel[1]], folder / "lateness.svg")
    rate = records.rows("schedule_rate")
    burst = records.rows("burst", tasks=records.scaled(10_000))
    titled = [row.named(f"{row.title} ({row.variant['handler']})") for row in burst]
    _draw_bars("tasks made in a second, one call each", rate, "single_per_second",
               folder / "schedule_rate.svg")  # fmt: skip
    _draw_bars("tasks of a burst run in a second", titled, "per_second", folder / "burst.svg")
    _draw_bars("bytes of the server's memory per pending task", records.rows("memory"),
               "bytes_per_task", folder / "memory.svg")  # fmt: skip


def _draw_lateness(panels: Sequence[tuple[str, Sequence[Row]]], file: Path) -> None:
    """The part of the tasks that began within a time, on a logarithmic axis."""
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 4.5), sharey=True,
                                squeeze=False)  # fmt: skip
    for axis, (title, rows) in zip(axes[0], panels, strict=True):
        for row in rows:
            if row.measured:
                _draw_distribution(axis, row)
        axis.set(xscale="log", xlabel="late by, in ms", title=title)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="upper left")
    axes[0][0].set_ylabel("% of the tasks that began")
    _save(figure, file)


def _draw_distribution(axis: Any, row: Row) -> None:
    points = [(row.percentile(percent), float(percent)) for percent in row.last("lateness_ms")]
    # A tenth of a millisecond is what can be told apart; what ran too early is not on this axis.
    began = [(max(late, 0.1), percent) for late, percent in points if math.isfinite(late)]
    ours = row.kind == "ours"
    axis.plot(
        [late for late, _ in began],
        [percent for _, percent in began],
        label=row.title,
        color=COLOURS["ours"] if ours else None,
        linewidth=2.5 if ours else 1.2,
        linestyle="--" if row.kind == "baseline" else "-",
    )


def _draw_bars(title: str, rows: Sequence[Row], name: str, file: Path) -> None:
    shown = sorted(
        (row for row in rows if row.measured and row.has(name)), key=lambda row: row.median(name)
    )
    figure, axis = plt.subplots(figsize=(7, 0.7 + 0.3 * len(shown)))
    values = [row.median(name) for row in shown]
    bars = axis.barh(
        [row.title for row in shown], values, color=[COLOURS[row.kind] for row in shown]
    )
    axis.bar_label(bars, labels=[f"{value:,.0f}" for value in values], padding=3)
    axis.margins(x=0.12)
    axis.set_title(title)
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)

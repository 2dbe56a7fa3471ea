"""Draws the plots of pages/performance.md."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.lab.records import Records, Row

mpl.use("svg")
# The same results give the same files.
mpl.rcParams |= {"svg.hashsalt": "expirebridge", "font.size": 9,
                 "figure.constrained_layout.use": True}  # fmt: skip

from matplotlib import pyplot as plt  # noqa: E402 - after the choice of what it draws

COLOURS = {"ours": "#c0392b", "peer": "#5d7fa3", "baseline": "#7f8c8d", "limit": "#bdc3c7"}


def draw(records: Records, folder: Path) -> None:
    """Draw all that there are figures for; of several servers, the first."""

    def of(measurement: str) -> Records:
        return records.of(measurement).of_first_server()

    among, bursts = of("lateness_pending"), of("burst")
    alone, rate, memory = of("lateness"), of("schedule_rate"), of("memory")
    pending = [(_titled("nothing else pending", alone), alone.rows("lateness"))]
    pending += [
        (
            _titled(f"{others:,} others pending", among),
            among.rows("lateness_pending", pending=others),
        )
        for others in among.variants("lateness_pending", "pending")
    ]
    _draw_lateness([panel for panel in pending if panel[1]], folder / "lateness.svg")
    [fewest, *_] = [*bursts.variants("burst", "tasks"), 0]
    burst = bursts.rows("burst", tasks=fewest)
    titled = [row.named(f"{row.title} ({row.variant['handler']})") for row in burst]
    for words, part, rows, name, file in (
        ("tasks made in a second, one call each", rate, rate.rows("schedule_rate"),
         "single_per_second", "schedule_rate"),
        ("tasks of a burst run in a second", bursts, titled, "per_second", "burst"),
        ("bytes of the server's memory per pending task", memory, memory.rows("memory"),
         "bytes_per_task", "memory"),
    ):  # fmt: skip
        _draw_bars(_titled(words, part), rows, name, folder / f"{file}.svg")


def _titled(words: str, records: Records) -> str:
    return f"{words} (quick)" if records.is_quick else words


def _draw_lateness(panels: Sequence[tuple[str, Sequence[Row]]], file: Path) -> None:
    """The part of the tasks that began within a time, on a logarithmic axis."""
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels) + 1.5, 4.5),
                                sharex=True, sharey=True, squeeze=False)  # fmt: skip
    titles = list(dict.fromkeys(row.title for _, rows in panels for row in rows))
    lines: dict[str, Any] = {}
    for axis, (title, rows) in zip(axes[0], panels, strict=True):
        for row in rows:
            if row.measured:
                colour = mpl.colormaps["tab20"](titles.index(row.title) % 20)
                lines[row.title] = _draw_distribution(axis, row, colour)
        axis.set(xscale="log", xlabel="late by, in ms", title=title)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("% of the tasks that began")
    figure.legend(lines.values(), lines.keys(), loc="outside right center")
    _save(figure, file)


def _draw_distribution(axis: Any, row: Row, colour: Any) -> Any:
    points = [(row.percentile(percent), float(percent)) for percent in row.last("lateness_ms")]
    # A tenth of a millisecond is what can be told apart; what ran too early is not on this axis.
    began = [(max(late, 0.1), percent) for late, percent in points if math.isfinite(late)]
    ours = row.kind == "ours"
    [line] = axis.plot(
        [late for late, _ in began],
        [percent for _, percent in began],
        color=COLOURS["ours"] if ours else colour,
        linewidth=2.5 if ours else 1.2,
        linestyle="--" if row.kind == "baseline" else "-",
        zorder=3 if ours else 2,
    )
    return line


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
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)

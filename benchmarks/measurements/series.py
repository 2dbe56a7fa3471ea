"""Ours: what many series cost that are due in one minute, and what they do to other tasks.

100,000 series have a tick at one moment, with a jitter of a minute; in a second variant there are
900,000 others, due hours later. In that minute, 3,000 other tasks come due evenly, as in
lateness.py; and before any series is made, as many in a minute without (`alone`), for the same
listener.

Of each of the two minutes: lateness of the other tasks, processor time of server and listener, and
how late the listener's event loop came at worst, looked at every 5 ms (`loop_lag_ms`). Besides: how
many series `schedule_many` makes in a second, and the server's memory for each, with its waiting
tick; how many ticks ran, and how many of them twice; and how many series had their next tick when
the minute ended (`followed`).
"""

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Load, Stage, StageError, sleep_until
from benchmarks.lab.verdict import Runs, Verdict
from expirebridge import Bridge

WORKER = "python -m benchmarks.kit.watched_listener {url} {here}/expirebridge_tasks"
TICKS = 2_000_000_000
"""The numbers of ticks begin here."""
PERCENTS = (50, 90, 99, 100)
LEAD = 5.0
"""Seconds before each of the two minutes, in which the other tasks are made."""
MADE_A_SECOND = 1000
"""Series, at least: for which time is given before they are due."""
LATER = 43_200.0
PATIENCE = 60.0


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    return [
        {"series": scale(100_000), "others": scale(others), "tasks": scale(3000),
         "seconds": scale.seconds(60)}
        for others in (0, 900_000)
    ]  # fmt: skip


def measure(case: Case) -> Figures:
    variant = case.variant
    series, others, seconds = variant["series"], variant["others"], variant["seconds"]
    with (
        Stage(case.contender, case.binary, worker=[WORKER]) as stage,
        Bridge(stage.server.url) as bridge,
    ):
        stage.start()
        stage.rest()
        alone = _minute(stage, variant, time.time() + LEAD)
        before, began = _memory(stage), time.monotonic()
        _make(bridge, range(series, series + others), time.time() + LATER)
        start = time.time() + series / MADE_A_SECOND + 2 * LEAD
        _make(bridge, range(series), start, jitter=seconds)
        figures: Figures = {
            "made_per_second": (series + others) / (time.monotonic() - began),
            "bytes_per_series": (_memory(stage) - before) / (series + others),
            "alone": alone,
        }
        if time.time() > start - LEAD:
            raise StageError("the series were not made in the time that was given for it")
        figures |= _minute(stage, variant, start)
        stage.wait_until(lambda: len(_ticks(stage)) == series, limit=PATIENCE, every=1.0)
        figures["ticks"] = len(_ticks(stage))
        figures["ticks_twice"] = sum(1 for times in _ticks(stage).values() if times > 1)
    return figures


def _memory(stage: Stage) -> int:
    return int(stage.info("memory")["used_memory"])


def _make(bridge: Bridge, numbers: range, start: float, *, jitter: float = 0.0) -> None:
    when: dict[str, Any] = {"every": 86_400, "start": datetime.fromtimestamp(start, UTC)}
    if jitter:
        when["jitter"] = jitter
    for at in range(0, len(numbers), 1000):
        bridge.schedule_many(
            {"id": f"tenant-{n}", "func": "mail.send", "args": [TICKS + n, "tenant"]} | when
            for n in numbers[at : at + 1000]
        )


def _minute(stage: Stage, variant: Variant, start: float) -> Figures:
    """Have the other tasks run from a moment on."""
    seconds = variant["seconds"]
    dues = stage.schedule_from(variant["tasks"], start, spread=seconds)
    sleep_until(start)
    server, listener = Load(stage.server_pids), Load(stage.worker_pids)
    sleep_until(start + seconds)
    end = time.time()
    figures: Figures = {
        "server_cpu_seconds": server.seconds(),
        "listener_cpu_seconds": listener.seconds(),
        "followed": stage.client.zcount("expirebridge:series", (start + LATER) * 1000, "(9e15"),
    }
    runs = stage.wait_for([dues], limit=PATIENCE)
    late = verdict.lateness(dues, runs)
    figures["lateness_ms"] = {f"{p:g}": verdict.percentile(late, p) for p in PERCENTS}
    figures["loop_lag_ms"] = _lag(stage, start, end)
    return figures | vars(Verdict.of([dues], runs, issued=2 * TICKS))


def _lag(stage: Stage, start: float, end: float) -> float:
    lines = (line.split() for line in (stage.folder / "lags").read_text().splitlines())
    return max((float(ms) for at, ms in lines if start < float(at) <= end + 1), default=0.0)


def _ticks(stage: Stage) -> Counter[int]:
    """How often each tick began."""
    began = Runs.read(stage.journal).began
    return Counter({n: len(times) for n, times in began.items() if n >= TICKS})


MEASUREMENT = Measurement(
    name="series",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=300,
)

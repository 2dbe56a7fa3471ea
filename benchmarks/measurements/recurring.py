"""Series with a tick each minute: how late ticks begin, and whether each runs once.

1,000 series, each at second 0 of every minute. All that the contender's documentation has one start
for recurring tasks is up once, or twice (`schedulers`). What its documentation says of two is in
the header of its file. With `killed` all of it is killed with SIGKILL, 0.1 s after a minute began,
and started again with the same commands.

Nothing is counted before the first full minute that begins 30 s after the start. Then each series
should run once in each of the `minutes`: `missed` did not begin within its minute, `twice` began
more than once. Lateness counts from the minute to the first start; what did not run is infinitely
late.
"""

import math
import time

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage, sleep_until
from benchmarks.lab.verdict import Runs

MINUTE = 60
STARTING = 30.0
"""Seconds in which all is up."""
KILLED_AFTER = 0.1
PERCENTS = (50, 90, 99, 100)


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.recurring:
        return []
    series = scale(1000)
    return [
        {"series": series, "schedulers": 1, "killed": False, "minutes": scale(3)},
        {"series": series, "schedulers": 2, "killed": False, "minutes": scale(3)},
        {"series": series, "schedulers": 1, "killed": True, "minutes": 2},
    ]


def measure(case: Case) -> Figures:
    variant, contender = case.variant, case.contender
    with Stage(
        contender,
        case.binary,
        handler=contender.handlers[0],
        worker=contender.recurring,
        series=variant["series"],
    ) as stage:
        stage.start(variant["schedulers"], probe=False)
        if contender.recurring_client:
            stage.call(contender.recurring_client)
        first = (int(time.time() + STARTING) // MINUTE + 1) * MINUTE
        if variant["killed"]:
            sleep_until(first + KILLED_AFTER)
            stage.kill()
            stage.restart()
        sleep_until(first + variant["minutes"] * MINUTE)
        return judge(Runs.read(stage.journal), variant, first)


def judge(runs: Runs, variant: Variant, first: int) -> Figures:
    """Hold the runs against the minutes."""
    late: list[float] = []
    twice = 0
    for minute in range(first, first + variant["minutes"] * MINUTE, MINUTE):
        for number in range(variant["series"]):
            starts = [at for at in runs.began.get(number, ()) if minute <= at < minute + MINUTE]
            late.append((min(starts, default=math.inf) - minute) * 1000)
            twice += len(starts) > 1
    late.sort()
    return {
        "asked": len(late),
        "missed": sum(1 for ms in late if math.isinf(ms)),
        "twice": twice,
        "lateness_ms": {f"{p:g}": verdict.percentile(late, p) for p in PERCENTS},
    }


MEASUREMENT = Measurement(
    name="recurring",
    variants=variants,
    measure=measure,
    limit=420,
    rounds=1,
    seconds=220,
)

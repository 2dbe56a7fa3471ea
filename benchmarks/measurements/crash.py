"""What becomes of tasks when the worker is killed among them, and started again at once.

2,000 tasks of a second each come due evenly over 40 s: about 50 run at any time, even where a
worker looks but once a second for what is due. After 20 s all that runs tasks is killed with
SIGKILL and started again with the same command. Then each task is accounted for: `twice` began more
than once; `lost` had not ended when the waiting did, whether it is gone or would have come back
later still. `interrupted` were running when the worker was killed. `recovery_seconds` is how long
after its due time the last one ended that did, with the second that it takes.

The waiting ends a minute after the time in which the contender takes up the tasks of a dead worker,
which is a default of its own (`redelivery` in its header), and the interval in which it looks; but
after twelve minutes in any case. A quick run has 400 tasks over 8 s. It waits for 10 s, and before
that for those who take tasks up within a minute. Whoever was not waited for so long says it:
`redelivery` is more than `patience` then, and those that are lost may only be late.
"""

import time

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Stage, sleep_until

WORK = 1.0
MARGIN = 60.0
LONGEST = 720.0
"""Seconds of waiting, so that a step is not longer than a piece."""
QUICK_MARGIN, QUICK_LONGEST = 10.0, 60.0
"""Of a quick run."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.runs_tasks:
        return []
    return [
        {
            "tasks": scale(2000),
            "seconds": scale.seconds(40),
            "work": WORK,
            "redelivery": contender.redelivery,
            "patience": _patience(contender, scale) + contender.interval,
        }
    ]


def _patience(contender: Contender, scale: Scale) -> float:
    if not scale.is_quick:
        return min(contender.redelivery + MARGIN, LONGEST)
    soon = contender.redelivery <= QUICK_LONGEST
    return QUICK_MARGIN + (contender.redelivery if soon else 0.0)


def measure(case: Case) -> Figures:
    variant, contender = case.variant, case.contender
    handler = contender.handlers[0]
    with Stage(contender, case.binary, handler=handler, work=variant["work"]) as stage:
        stage.start()
        dues = stage.schedule(variant["tasks"], spread=variant["seconds"])
        sleep_until(dues.due_ms / 1000 + variant["seconds"] / 2)
        stage.kill()
        killed = time.time()
        stage.restart()
        runs = stage.wait_for([dues], limit=variant["patience"])
        figures: Figures = vars(stage.verdict([dues], runs)).copy()
        figures["interrupted"] = sum(
            1
            for number in dues.numbers
            if any(began < killed for began in runs.began.get(number, ()))
            and not any(ended < killed for ended in runs.ended.get(number, ()))
        )
        ends = {n: min(runs.ended[n]) - dues.due(n) for n in dues.numbers if runs.ended.get(n)}
        figures["recovery_seconds"] = max(ends.values(), default=0.0)
    return figures


MEASUREMENT = Measurement(
    name="crash",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=120,
    quick=Quick(part=0.2, seconds=40),
)

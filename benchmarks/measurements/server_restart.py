"""Ours and the designs that need the server: what becomes of tasks when it is killed and started.

1,000 tasks come due evenly over 20 s. After 5 s the server is killed with SIGKILL, and 3 s later it
is started again with its files. A worker that ended meanwhile is then started again, as by a
supervisor. `lost` had not run 60 s after the last was due.
"""

import time

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Stage, sleep_until

PATIENCE = 60.0
PERCENTS = (50, 90, 99, 100)
SETTLED = 5.0
"""Seconds after the start in which workers may end and are started again."""


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind not in {"ours", "baseline", "design"} or contender.place != "server":
        return []
    return [{"tasks": scale(1000), "seconds": 20, "killed_after": 5, "away": 3}]


def measure(case: Case) -> Figures:
    variant = case.variant
    with Stage(case.contender, case.binary, handler=case.contender.handlers[0]) as stage:
        stage.start()
        dues = stage.schedule(variant["tasks"], spread=variant["seconds"])
        sleep_until(dues.due_ms / 1000 + variant["killed_after"])
        stage.server.kill()
        time.sleep(variant["away"])
        stage.server.start()
        restarts = 0
        until = time.monotonic() + SETTLED
        while time.monotonic() < until:
            restarts += stage.revive()
            time.sleep(0.2)
        runs = stage.wait_for([dues], limit=PATIENCE)
        late = verdict.lateness(dues, runs)
        figures: Figures = vars(stage.verdict([dues], runs)).copy()
        figures["worker_restarts"] = restarts
        figures["lateness_ms"] = {f"{p:g}": verdict.percentile(late, p) for p in PERCENTS}
    return figures


MEASUREMENT = Measurement(
    name="server_restart",
    variants=variants,
    measure=measure,
    limit=300,
    rounds=1,
    seconds=40,
    quick=Quick(part=0.4, seconds=38),
)

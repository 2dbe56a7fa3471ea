"""How fast a worker gets through tasks that are all due at one instant, and do nothing.

Rate = tasks / (the last handler's end - the due time). 10,000 tasks, ours also with 100,000 unless
the run is quick, once for each kind of handler that the contender has. What had not run when the
waiting ended, after `patience` seconds, counts as lost, and the rate is then of those that ran,
until the end of the waiting.
"""

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Load, Stage, sleep_until

PATIENCE = 300.0


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if not contender.runs_tasks:
        return []
    many = contender.kind == "ours" and not scale.is_quick
    counts = [10_000, 100_000] if many else [10_000]
    return [
        {"tasks": scale(count), "handler": handler, "patience": scale.seconds(PATIENCE)}
        for count in counts
        for handler in contender.handlers
    ]


def measure(case: Case) -> Figures:
    with Stage(case.contender, case.binary, handler=case.variant["handler"]) as stage:
        stage.start()
        return run_burst(stage, case.variant["tasks"], case.variant["patience"])


def run_burst(stage: Stage, count: int, patience: float = PATIENCE) -> Figures:
    """Have `count` tasks run, all due at one instant, by the workers that are up."""
    dues = stage.schedule(count)
    sleep_until(dues.last - 0.2)
    server, workers = Load(stage.server_pids), Load(stage.worker_pids)
    runs = stage.wait_for([dues], limit=patience)
    figures: Figures = vars(stage.verdict([dues], runs)).copy()
    figures |= {"server_cpu_seconds": server.seconds(), "worker_cpu_seconds": workers.seconds()}
    if figures["ran"]:
        last = max(max(times) for number, times in runs.ended.items() if number in dues.numbers)
        took = patience if figures["lost"] else last - dues.last
        figures |= {"seconds": took, "per_second": figures["ran"] / took}
    return figures


MEASUREMENT = Measurement(
    name="burst",
    variants=variants,
    measure=measure,
    limit=600,
    seconds=35,
    quick=Quick(part=0.3, seconds=17),
)

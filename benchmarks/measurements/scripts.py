"""Ours: how long the server is held by the longest scripts, with 1,000,000 tasks pending.

The server runs one command at a time, so a long script delays everybody. The tasks of a lateness
measurement are made and run (1,000 over 10 s, then 2,000 at one instant), while the server's
SLOWLOG keeps every command. Of each script: how often it ran, and the 50th and 99th percentile and
the maximum of its time in microseconds, as the server measured it. `latency_spikes` is what the
server's own LATENCY monitor holds of 1 ms or more.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import expirebridge
from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage
from expirebridge.store.script_loader import load

KEPT = 100_000
PERCENTS = (50, 99, 100)
PATIENCE = 30.0


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours":
        return []
    return [{"pending": scale(1_000_000), "tasks": scale(1000), "burst": scale(2000),
             "seconds": scale.seconds(10)}]  # fmt: skip


def measure(case: Case) -> Figures:
    variant = case.variant
    with Stage(case.contender, case.binary) as stage:
        stage.start()
        stage.fill(variant["pending"])
        stage.rest()
        for name, value in (
            ("slowlog-max-len", KEPT),
            ("slowlog-log-slower-than", 0),
            ("latency-monitor-threshold", 1),
        ):
            stage.client.config_set(name, value)
        stage.client.slowlog_reset()
        spread = stage.schedule(variant["tasks"], spread=variant["seconds"])
        stage.wait_for([spread], limit=PATIENCE)
        burst = stage.schedule(variant["burst"])
        runs = stage.wait_for([burst], limit=PATIENCE)
        figures: Figures = vars(stage.verdict([spread, burst], runs)).copy()
        figures["scripts"] = _summed_up(stage.client.slowlog_get(KEPT))
        figures["latency_spikes"] = {
            # Newer servers tell more, after these: name, time of the latest, its ms, highest ms.
            event[0].decode(): event[3]
            for event in stage.client.latency_latest()
        }
    return figures


def _summed_up(entries: list[dict[str, Any]]) -> dict[str, Any]:
    names = _script_names()
    times: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        command, _, arguments = entry["command"].partition(b" ")
        if command.upper() in {b"EVALSHA", b"EVAL", b"EVALSHA_RO"}:
            name = names.get(arguments.partition(b" ")[0].decode(), "another")
            times[name].append(entry["duration"])
    return {
        name: {"calls": len(taken)}
        | {f"{p:g}": verdict.percentile(sorted(taken), p) for p in PERCENTS}
        for name, taken in sorted(times.items())
    }


def _script_names() -> dict[str, str]:
    """The names of our scripts by the digests that the server knows them by."""
    names: dict[str, str] = {}
    for file in Path(expirebridge.__file__).parent.glob("*/lua/*.lua"):
        script = load(file.stem)
        names |= {script.headed.sha: script.name, script.plain.sha: script.name}
    return names


MEASUREMENT = Measurement(
    name="scripts",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=80,
)

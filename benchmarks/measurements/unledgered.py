"""Ours: what tasks without a row cost, now and before there was a ledger.

The listener and the producer are those of the present code without a ledger; of the present code
whose listener has a ledger; of the last commit without any code of a ledger; and of the first
version. They take turns, `--rounds` times. Of each: bytes of the server for one pending task of
20,000; then 10,000 tasks at one instant: their rate, the time of scripts in the server for each
task, as it counts them itself, and the processor time of server and listener for each, with the
seconds of waiting; then the lateness of 1,000 tasks over 5 s.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.lab import verdict
from benchmarks.lab.contender import REPOSITORY, Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Stage
from benchmarks.measurements.burst import run_burst

CODES = {
    "present": "",
    "present, its listener with a ledger": "",
    "before the ledger": "22cbd1a6ffef33713ef70ae1bd74b033d991e1c5",
    "first version": "e19fcb90871e1a7be7bf233d6b62a90c93dffe6b",
}
"""The commit of each; the present one is in the working directory."""
LEDGER = "present, its listener with a ledger"
WORKER = "python -m expirebridge listen --quiet --url {url} --tasks {here}/plain_tasks"
PERCENTS = (50, 99, 100)
PATIENCE = 30.0


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.name != "expirebridge":
        return []
    sizes = {"pending": scale(20_000), "burst": scale(10_000), "tasks": scale(1000)}
    return [sizes | {"code": code, "seconds": scale.seconds(5)} for code in CODES]


def measure(case: Case) -> Figures:
    variant, ledger = case.variant, case.variant["code"] == LEDGER
    with tempfile.TemporaryDirectory() as folder:
        variables = {"EXPIREBRIDGE_LEDGER": "{database}"} if ledger else {}
        if commit := CODES[variant["code"]]:
            _unpack(commit, Path(folder))
            variables["PYTHONPATH"] = f"{folder}:{REPOSITORY}"
        with Stage(
            case.contender, case.binary, worker=[WORKER], variables=variables,
            database="postgresql" if ledger else "",
        ) as stage:  # fmt: skip
            if ledger:
                stage.call("python -m expirebridge ledger create")
            return _run(stage, variant)


def _unpack(commit: str, folder: Path) -> None:
    git = ["git", "-c", "safe.directory=*", "-C", str(REPOSITORY)]
    packed = subprocess.run(
        [*git, "archive", commit, "expirebridge"], capture_output=True, check=True
    )
    # Not tarfile: Python 3.11.2 has no filter for it, and later ones ask for one.
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)


def _run(stage: Stage, variant: Variant) -> Figures:
    stage.start()
    stage.rest()
    empty = _memory(stage)
    stage.fill(variant["pending"])
    figures: Figures = {"bytes_per_task": (_memory(stage) - empty) / variant["pending"]}
    stage.rest()
    scripts = _script_seconds(stage)
    burst = run_burst(stage, variant["burst"])
    figures |= {name: burst[name] for name in ("ran", "lost", "twice", "per_second")}
    for name, seconds in (
        ("script", _script_seconds(stage) - scripts),
        ("server", burst["server_cpu_seconds"]),
        ("worker", burst["worker_cpu_seconds"]),
    ):
        figures[f"{name}_us_per_task"] = seconds * 1e6 / variant["burst"]
    dues = stage.schedule(variant["tasks"], spread=variant["seconds"])
    late = verdict.lateness(dues, stage.wait_for([dues], limit=PATIENCE))
    return figures | {"lateness_ms": {f"{p}": verdict.percentile(late, p) for p in PERCENTS}}


def _memory(stage: Stage) -> int:
    return int(stage.info("memory")["used_memory"])


def _script_seconds(stage: Stage) -> float:
    """The time that scripts have taken so far, as the server counts it."""
    found: dict[str, Any] = stage.info("commandstats")
    names = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")
    return sum(float(found[name]["usec"]) for name in names if name in found) / 1e6


MEASUREMENT = Measurement(
    name="unledgered",
    variants=variants,
    measure=measure,
    limit=180,
    seconds=23,
)

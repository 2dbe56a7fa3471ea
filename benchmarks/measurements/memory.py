"""What a pending task costs in the server's memory and on disk: the reference task, due in an hour.

    make_task("mail.send", [i, "user@example.com"], 3600)

or the contender's counterpart, with the same arguments. Nobody runs tasks meanwhile. The first are
not counted, so that what is made once, such as connections and scripts, is left out. What the
worker's memory grows by is measured with lateness, where the worker runs. On disk are the server's
append-only file, as it is before it is rewritten, and the files of a contender that has its own.
"""

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Quick, Scale, Variant
from benchmarks.lab.stage import Stage

WARM = 1000
AN_HOUR = 3600


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    return [] if contender.name == "server_script" else [{"tasks": scale(50_000)}]


def measure(case: Case) -> Figures:
    count: int = case.variant["tasks"]
    with Stage(case.contender, case.binary) as stage:
        bulk = stage.producer.bulk
        stage.order(WARM, delay=AN_HOUR, bulk=bulk)
        before, on_disk = _used(stage), _on_disk(stage)
        stage.order(count, delay=AN_HOUR, bulk=bulk)
        return {
            "bytes_per_task": (_used(stage) - before) / count,
            "disk_bytes_per_task": (_on_disk(stage) - on_disk) / count,
        }


def _used(stage: Stage) -> int:
    """Bytes in use, but for the buffer of what is still to be written to disk."""
    info = stage.info("all")
    return int(info["used_memory"]) - int(info["mem_aof_buffer"])


def _on_disk(stage: Stage) -> int:
    """Bytes of the files that the server and the contender have."""
    folders = (stage.server.directory, stage.folder)
    return sum(f.stat().st_size for folder in folders for f in folder.rglob("*") if f.is_file())


MEASUREMENT = Measurement(
    name="memory",
    variants=variants,
    measure=measure,
    limit=240,
    rounds=1,
    seconds=12,
    quick=Quick(part=0.2, seconds=4),
)

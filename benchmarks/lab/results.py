"""The file of results: records of all machines, one for each round of each variant."""

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.lab.contender import Contender
from benchmarks.lab.machine import Here, version_of
from benchmarks.lab.measurement import Figures
from benchmarks.lab.plan import Step

Record = dict[str, Any]


class Results:
    """Records, kept in a file after each.

    A record holds for a step as long as what it depends on is the same: the machine, the server's
    version, and of ours the commit, of others their packages.
    """

    def __init__(self, path: Path, here: Here) -> None:
        self._path = path
        self._here = here
        self._versions: dict[Path, str] = {}
        self.document: dict[str, Any] = {"contenders": {}, "records": []}
        if path.exists():
            self.document = json.loads(path.read_text(encoding="utf-8"))

    def find(self, step: Step) -> Record | None:
        """The record that holds for a step, if there is one."""
        wanted = self._key(step) | self._depends_on(step) | {"round": step.round}
        records: list[Record] = self.document["records"]
        return next((record for record in records if wanted.items() <= record.items()), None)

    def add(self, step: Step, figures: Figures, *, beside: str = "") -> None:
        """Keep the figures of a step, in place of those that hold no more."""
        key, depends_on = self._key(step), self._depends_on(step)
        variants = step.measurement.variants(step.contender, step.scale)

        def stays(record: Record) -> bool:
            if not (key | {"variant": record["variant"]}).items() <= record.items():
                return True
            if record["variant"] != dict(step.variant):
                return record["variant"] in variants
            return depends_on.items() <= record.items() and record["round"] != step.round

        self.document["records"] = [r for r in self.document["records"] if stays(r)]
        about = {"system": self._here.system, "commit": self._here.commit, "beside": beside}
        self.document["records"].append(
            key | {"round": step.round} | about | depends_on | _finite(figures)
        )
        self.write()

    def describe(self, contender: Contender, versions: dict[str, str]) -> None:
        """Keep what a contender is, and the versions of its packages."""
        self.document["contenders"][contender.name] = {
            "title": contender.title,
            "kind": contender.kind,
            "settings": contender.settings,
            "only": contender.only,
            "because": contender.because,
            "concurrency": contender.concurrency,
            "worker": contender.worker,
            "documentation": contender.documentation,
            "versions": versions,
        }

    def seconds(self, step: Step) -> float:
        """Estimate how long a step takes, from its latest record, else as its measurement says."""
        of_step = {"measurement": step.measurement.name, "contender": step.contender.name,
                   "variant": dict(step.variant)}  # fmt: skip
        for record in reversed(self.document["records"]):
            if of_step.items() <= record.items():
                return float(record["took"])
        return step.usual_seconds

    def _key(self, step: Step) -> Record:
        return {
            "measurement": step.measurement.name,
            "machine": self._here.machine,
            "server": step.server,
            "contender": step.contender.name,
            "scale": step.scale.part,
            "variant": dict(step.variant),
        }

    def _depends_on(self, step: Step) -> Record:
        binary = step.binary
        if binary not in self._versions:
            self._versions[binary] = version_of(binary)
        depends_on = {"server_version": self._versions[binary]}
        if step.contender.kind == "ours":
            return depends_on | {"commit": self._here.commit}
        return depends_on | {"packages": " ".join(step.contender.dependencies)}

    def write(self) -> None:
        """Write the file, in one piece."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        head = {name: value for name, value in self.document.items() if name != "records"}
        # One record a line: the file is long, and is compared line by line.
        lines = ",\n".join(json.dumps(record) for record in self.document["records"])
        text = json.dumps(head, indent=1)[:-2] + ',\n "records": [\n' + lines + "\n]}\n"
        beside = self._path.with_suffix(".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._path)


def _finite(value: Any) -> Any:
    """JSON knows no infinity; a task that never ran is `null` late."""
    match value:
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case float():
            return float(f"{value:.6g}")
        case _:
            return value

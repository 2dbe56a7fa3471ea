"""The file of results: what was measured, on what machine, with which versions."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.lab.measurement import Figures, Variant

KEY = ("measurement", "server", "contender", "variant", "round")


class Results:
    """Records, one for each round of each variant, kept in a file after each."""

    def __init__(self, path: Path, *, scale: float) -> None:
        self._path = path
        self.document: dict[str, Any] = {"scale": scale, "machine": {}, "servers": {},
                                         "contenders": {}, "records": []}  # fmt: skip
        if path.exists():
            self.document = json.loads(path.read_text(encoding="utf-8"))
            if self.document["scale"] != scale:
                raise ValueError(f"{path} holds results of scale {self.document['scale']:g}")

    def measured_on(self, machine: Mapping[str, Any]) -> None:
        """Take note of the machine. Raises ValueError if the results are of another one."""
        here, there = dict(machine), self.document["machine"]
        if there and there != here:
            raise ValueError(f"{self._path} holds results of another machine: {there}, not {here}")
        self.document["machine"] = here

    def find(
        self, measurement: str, server: str, contender: str, variant: Variant, round: int
    ) -> Figures | None:
        """The record of a round, if there is one."""
        wanted = dict(zip(KEY, (measurement, server, contender, dict(variant), round), strict=True))
        for record in self.document["records"]:
            if {name: record[name] for name in KEY} == wanted:
                found: Figures = record
                return found
        return None

    def add(
        self,
        measurement: str,
        server: str,
        contender: str,
        variant: Variant,
        round: int,
        figures: Figures,
    ) -> None:
        """Keep the figures of a round, in place of earlier ones."""
        records = self.document["records"]
        if (old := self.find(measurement, server, contender, variant, round)) is not None:
            records.remove(old)
        key = dict(zip(KEY, (measurement, server, contender, dict(variant), round), strict=True))
        records.append(key | _finite(figures))
        self.write()

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

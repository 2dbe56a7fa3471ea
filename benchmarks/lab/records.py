"""Reads a file of results: the rounds of each contender, summed up."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from benchmarks.lab.contender import ORDER

Record = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One contender in one variant of a measurement, on one server: all its rounds."""

    title: str
    kind: str
    variant: dict[str, Any]
    rounds: Sequence[Record]
    """Those that were measured."""
    errors: Sequence[str]

    @property
    def measured(self) -> bool:
        """Whether there is a round without an error."""
        return bool(self.rounds)

    @property
    def why_not(self) -> str:
        """Why there is none."""
        return self.errors[0].splitlines()[0][:60] if self.errors else "-"

    def named(self, title: str) -> "Row":
        """The same under another title."""
        return replace(self, title=title)

    def has(self, name: str) -> bool:
        """Whether a round has this figure, or this percentile."""
        return any(
            name in record or name in record.get("lateness_ms", {}) for record in self.rounds
        )

    def last(self, name: str) -> Any:
        """The figure of the last round."""
        return self.rounds[-1][name]

    def median(self, name: str) -> float:
        """The median of the rounds."""
        return statistics.median(_value(record[name]) for record in self.rounds if name in record)

    def total(self, name: str) -> int:
        """The sum of the rounds."""
        return sum(int(record[name]) for record in self.rounds)

    def percentile(self, percent: str) -> float:
        """Lateness in ms: the median of the rounds, but of all the worst, the worst."""
        return self.spread("lateness_ms", percent)

    def spread(self, name: str, percent: str) -> float:
        """The same of another figure that has percentiles."""
        values = [_value(record[name][percent]) for record in self.rounds]
        return max(values) if percent == "100" else statistics.median(values)


def _value(value: float | None) -> float:
    """A figure; what is infinite is null in the file."""
    return math.inf if value is None else float(value)


class Records:
    """The records of a file of results."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @classmethod
    def newest(cls, files: Sequence["Records"]) -> "Records":
        """Of each measurement what the last of these files has of it; the rest is the first's."""
        contenders: dict[str, Any] = {}
        by_measurement: dict[str, list[Record]] = {}
        for each in files:
            contenders |= each.document["contenders"]
            found: defaultdict[str, list[Record]] = defaultdict(list)
            for record in each.document["records"]:
                found[record["measurement"]].append(record)
            by_measurement |= found
        records = [record for some in by_measurement.values() for record in some]
        return cls(files[0].document | {"contenders": contenders, "records": records})

    def measured_together(self) -> str:
        """Two measurements during which the other was under way; nothing if there are none."""
        spans = sorted(
            (record["began"], record["began"] + record["took"], place)
            for place, record in enumerate(self.document["records"])
        )
        for (_, ended, first), (began, _, second) in pairwise(spans):
            # When one began is known to the second.
            if began < ended - 1:
                pair = (self.document["records"][place] for place in (first, second))
                return ", ".join(f"{one['measurement']} of {one['contender']}" for one in pair)
        return ""

    def has_measurement(self, name: str) -> bool:
        """Whether anything was measured by this name."""
        return bool(self._of(name))

    def has_kind(self, kind: str) -> bool:
        """Whether a contender of this kind was measured."""
        return bool(self.of_kinds(kind).document["records"])

    def of_first_server(self) -> "Records":
        """The same without the other servers."""
        [(server, version), *_] = self.document["servers"].items()
        records = [r for r in self.document["records"] if r["server"] == server]
        return Records(self.document | {"servers": {server: version}, "records": records})

    def of_kinds(self, *kinds: str) -> "Records":
        """The same without contenders of other kinds."""
        contenders = {
            name: about
            for name, about in self.document["contenders"].items()
            if about["kind"] in kinds
        }
        records = [r for r in self.document["records"] if r["contender"] in contenders]
        return Records(self.document | {"contenders": contenders, "records": records})

    def scaled(self, count: int) -> int:
        """So many tasks at the scale of these results."""
        return max(int(count * self.document["scale"]), 1)

    def variants(self, measurement: str, name: str) -> list[Any]:
        """The values that a part of the variants has, in order."""
        return sorted({record["variant"][name] for record in self._of(measurement)})

    def rows(self, measurement: str, **wanted: Any) -> list[Row]:
        """A row for each contender, server and variant that has these parts: ours first."""
        found: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
        for record in self._of(measurement):
            if wanted.items() <= record["variant"].items():
                key = (record["server"], record["contender"], str(record["variant"]))
                found[key].append(record)
        servers: dict[str, str] = self.document["servers"]
        rows = []
        for (server, name, _), records in sorted(found.items(), key=self._place):
            about = self.document["contenders"][name]
            title = about["title"] + (f" on {servers[server]}" if len(servers) > 1 else "")
            rows.append(
                Row(
                    title=title,
                    kind=about["kind"],
                    variant=records[0]["variant"],
                    rounds=[record for record in records if "error" not in record],
                    errors=[record["error"] for record in records if "error" in record],
                )
            )
        return rows

    def _place(self, item: tuple[tuple[str, str, str], list[Record]]) -> tuple[int, int, str]:
        server, name, _ = item[0]
        kind = self.document["contenders"][name]["kind"]
        return list(self.document["servers"]).index(server), ORDER.index(kind), name

    def _of(self, measurement: str) -> list[Record]:
        return [r for r in self.document["records"] if r["measurement"] == measurement]

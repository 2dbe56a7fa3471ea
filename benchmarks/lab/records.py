"""Reads the file of results: the rounds of each contender, summed up."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from benchmarks.lab.contender import ORDER
from benchmarks.lab.machine import EMBEDDED
from benchmarks.lab.results import Record


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
    """The records of a file of results, or some of them."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.contenders: dict[str, Any] = document["contenders"]
        self.records: list[Record] = document["records"]

    def measured_together(self) -> str:
        """Two measurements of one machine during which the other was under way, if there are."""
        spans = sorted(
            (record["machine"], record["began"], record["began"] + record["took"], place)
            for place, record in enumerate(self.records)
        )
        for (one, _, ended, first), (other, began, _, second) in pairwise(spans):
            # When one began is known to the second.
            if one == other and began < ended - 1:
                pair = (self.records[place] for place in (first, second))
                return ", ".join(f"{each['measurement']} of {each['contender']}" for each in pair)
        return ""

    def of_kinds(self, *kinds: str) -> "Records":
        """The same without contenders of other kinds."""
        contenders = {
            name: about for name, about in self.contenders.items() if about["kind"] in kinds
        }
        records = [r for r in self.records if r["contender"] in contenders]
        return Records({"contenders": contenders, "records": records})

    def of(self, measurement: str) -> "Records":
        """Return the records of a measurement that are compared: of one machine and one size.

        It is the machine and size with the most contenders. Of several with as many, it is the
        machine that measured last, and there the full size before the quick one.
        """
        sizes: dict[tuple[str, float], list[Record]] = defaultdict(list)
        latest: dict[str, int] = defaultdict(int)
        for record in self.records:
            if record["measurement"] == measurement:
                machine = record["machine"]
                sizes[machine, record["scale"]].append(record)
                latest[machine] = max(latest[machine], record["began"])

        def rank(size: tuple[str, float]) -> tuple[int, int, float]:
            machine, scale = size
            took_part = {record["contender"] for record in sizes[size]}
            return len(took_part), latest[machine], scale

        return self._only(sizes[max(sizes, key=rank)] if sizes else [])

    def of_first_server(self) -> "Records":
        """The same without the other servers."""
        return self._only([r for r in self.records if r["server"] in list(self.servers)[:1]])

    def _only(self, records: list[Record]) -> "Records":
        return Records({"contenders": self.contenders, "records": records})

    @property
    def servers(self) -> dict[str, str]:
        """The version of each server, by name: first the one that all are measured on."""
        versions = {record["server"]: record["server_version"] for record in self.records}
        return dict(sorted(versions.items(), key=lambda server: server[0] != EMBEDDED))

    @property
    def is_quick(self) -> bool:
        """Whether these are of a quick run."""
        return any(record["scale"] < 1 for record in self.records)

    def where(self) -> str:
        """Where and when these were measured, and of which code."""
        dates = sorted(_date(record["began"]) for record in self.records)
        parts = [
            " to ".join(dict.fromkeys((dates[0], dates[-1]))),
            *self._each("machine"),
            *self._each("system"),
            *self.servers.values(),
        ]
        ours = self.of_kinds("ours")
        if commits := ours._each("commit"):
            parts.append(f"expirebridge at {', '.join(f'`{commit}`' for commit in commits)}")
        parts += [f"while {words}" for words in self._each("beside") if words]
        if self.is_quick:
            part = max(record["scale"] for record in self.records)
            parts.append(f"**quick: {part:g} of the tasks, one round**")
        return "; ".join(parts)

    def _each(self, name: str) -> list[str]:
        return list(dict.fromkeys(record[name] for record in self.records))

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
        rows = []
        for (server, name, _), records in sorted(found.items(), key=self._place):
            about = self.contenders[name]
            other = list(self.servers).index(server) > 0
            rows.append(
                Row(
                    title=about["title"] + (f" on {self.servers[server]}" if other else ""),
                    kind=about["kind"],
                    variant=records[0]["variant"],
                    rounds=[record for record in records if "error" not in record],
                    errors=[record["error"] for record in records if "error" in record],
                )
            )
        return rows

    def _place(self, item: tuple[tuple[str, str, str], list[Record]]) -> tuple[int, str, int]:
        server, name, _ = item[0]
        kind = self.contenders[name]["kind"]
        return ORDER.index(kind), name, list(self.servers).index(server)

    def _of(self, measurement: str) -> list[Record]:
        return [r for r in self.records if r["measurement"] == measurement]


def _date(began: float) -> str:
    return datetime.fromtimestamp(began, UTC).date().isoformat()

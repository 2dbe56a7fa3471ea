"""The table of the fault tests: each fault, what is promised of it, and what came of it.

It is printed after every run, server by server. `make faults` also writes it into
`benchmarks/pages/faults.md`, between two marks. The rows of faults that were not run stay.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from expirebridge import LateCause, State
from tests.kit.checker import Verdict

PAGE = Path(__file__).parents[2] / "benchmarks" / "pages" / "faults.md"
BEGIN = "<!-- The table begins: `make faults` writes it. -->\n"
END = "<!-- The table ends. -->\n"
HEAD = (
    "| fault | how it is injected | what is promised | times | lost | run twice, and why "
    "| longest delay |\n|---|---|---|--:|--:|---|--:|\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What a fault test is about, in words for the table."""

    name: str
    injected: str
    """How the test makes it happen."""
    promise: str
    """What is still promised of the tasks then."""


class Table:
    """The verdicts of all rounds, summed up by fault and server."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[Fault, str], list[tuple[Verdict, int]]] = {}

    def add(self, fault: Fault, server: str, verdict: Verdict, times: int) -> None:
        """Note the verdict over a round in which the fault was injected so many times."""
        self._rounds.setdefault((fault, server), []).append((verdict, times))

    def include(self, other: "Table") -> None:
        """Take the other's rounds, of tests that ran in another process."""
        for key, rounds in other._rounds.items():
            self._rounds.setdefault(key, []).extend(rounds)

    def lines(self) -> Iterator[str]:
        """The table as text, nothing if there was no round."""
        if not self._rounds:
            return
        found = sorted(self._rounds.items(), key=lambda item: (item[0][1], item[0][0].name))
        rows = [_COLUMNS, *(_row(server, fault, rounds) for (fault, server), rounds in found)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [
                text.ljust(width) if place in _WORDS else text.rjust(width)
                for place, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield "  ".join(cells).rstrip()

    def write_into(self, page: Path) -> None:
        """Put the rows into the page, in place of the same faults' rows."""
        before, rest = page.read_text().split(BEGIN)
        old, after = rest.split(END)
        rows = dict(re.findall(r"^(\| [^|]+ \|)(.*\n)", old.removeprefix(HEAD), re.MULTILINE))
        for fault in {fault for fault, _ in self._rounds}:
            rounds = [
                each for (of, _), some in self._rounds.items() if of == fault for each in some
            ]
            rows[f"| {fault.name} |"] = _rest_of_row(fault, rounds)
        body = "".join(name + row for name, row in sorted(rows.items()))
        page.write_text("".join([before, BEGIN, HEAD, body, END, after]))


TABLE = Table()

_COLUMNS = (
    "server", "fault", "rounds", "times", "acknowledged", "succeeded", "failed", "cancelled",
    "forgotten", "lost", "early", "unexplained", "kills that hit", "longest recovery",
    "longest delay", "twice, and why", "late, and why",
)  # fmt: skip
_WORDS = {0, 1, len(_COLUMNS) - 2, len(_COLUMNS) - 1}
"""The columns that hold words and not numbers."""


def _row(server: str, fault: Fault, rounds: list[tuple[Verdict, int]]) -> tuple[str, ...]:
    verdicts = [verdict for verdict, _ in rounds]
    states = Counter[State]()
    for verdict in verdicts:
        states += verdict.states
    recoveries = [ms for verdict in verdicts for ms in verdict.recoveries]
    longest = max((ms for ms in recoveries if ms is not None), default=None)
    numbers = [
        len(rounds),
        sum(times for _, times in rounds),
        sum(verdict.acknowledged for verdict in verdicts),
        *(states[state] for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED)),
        sum(verdict.forgotten for verdict in verdicts),
        sum(len(verdict.lost) for verdict in verdicts),
        sum(len(verdict.early) for verdict in verdicts),
        sum(len(verdict.unexplained) for verdict in verdicts),
    ]
    kills = sum(verdict.kills for verdict in verdicts)
    return (
        server,
        fault.name,
        *(f"{number:,}" for number in numbers),
        f"{len(recoveries)} of {kills}",
        f"{longest:,} ms" if longest is not None else "-",
        f"{_longest_delay(verdicts):,} ms",
        _twice(verdicts),
        _late(verdicts),
    )


def _rest_of_row(fault: Fault, rounds: list[tuple[Verdict, int]]) -> str:
    """The row for the page, after the fault's name."""
    verdicts = [verdict for verdict, _ in rounds]
    cells = (
        fault.injected,
        fault.promise,
        f"{sum(times for _, times in rounds):,}",
        _lost(verdicts),
        _twice(verdicts),
        f"{_longest_delay(verdicts):,} ms",
    )
    return " " + " | ".join(cells) + " |\n"


def _lost(verdicts: Iterable[Verdict]) -> str:
    """The lost ones; those apart of which the fault takes the server's memory."""
    lost = sum(len(verdict.lost) for verdict in verdicts)
    forgotten = sum(verdict.forgotten for verdict in verdicts)
    return f"{lost:,}, and {forgotten:,} with the server's memory" if forgotten else f"{lost:,}"


def _longest_delay(verdicts: Iterable[Verdict]) -> int:
    return max(verdict.longest_delay for verdict in verdicts)


def _twice(verdicts: Iterable[Verdict]) -> str:
    return _counted(sum((verdict.twice for verdict in verdicts), Counter[str]()))


def _late(verdicts: Iterable[Verdict]) -> str:
    return _counted(sum((verdict.causes for verdict in verdicts), Counter[LateCause]()))


def _counted(counts: Counter[str] | Counter[LateCause]) -> str:
    """The sum, and what it is made of, the most frequent first."""
    most = sorted(counts.items(), key=lambda item: -item[1])
    why = ", ".join(f"{count:,} {reason}" for reason, count in most)
    return f"{sum(counts.values()):,}: {why}" if counts else "0"

"""What handlers of overlapping lanes declare, and the tasks that are due, drawn at random."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from expirebridge.store import script_loader

STEP = 0.2
"""Seconds of one step: far more than what really passes meanwhile."""
AT_ONCE = 3
"""So many slots a script gives at most, instead of a hundred: what it does not come to is left."""

names = st.text("abcdefgh", min_size=1, max_size=3)


@dataclass(frozen=True)
class Plan:
    """What handlers declare, and the tasks that are due."""

    handlers: Sequence[tuple[str, Sequence[str]]]
    """Each function with the kinds of its limits, in the order in which slots are taken."""
    limits: dict[str, str]
    """The name of the limit of each kind."""
    most: dict[str, int]
    interval: int
    """Steps between two starts of the rate."""
    tasks: Sequence[tuple[int, str]]
    """The place of the handler, and an argument."""
    durations: Sequence[int]
    """Steps for which the tasks of each handler run."""
    codes: int
    """How many codes the fleet runs."""

    def declaration(self) -> list[tuple[str, bytes]]:
        """The hash `limits`."""
        specs = {
            "line": {"most": 1, "ordered": True}, "rate": {"starts": 1, "every": self._interval_us},
            "each": {"most": self.most["each"]}, "all": {"most": self.most["all"]},
        }  # fmt: skip
        fields: list[tuple[str, object]] = [
            (f"l {self.limits[kind]}", spec) for kind, spec in specs.items()
        ]
        for func, kinds in self.handlers:
            fields.append((f"f {func}", [self._entry(kind) for kind in kinds]))
        return [(name, json.dumps(value).encode()) for name, value in fields]

    @property
    def _interval_us(self) -> int:
        return round(self.interval * STEP * 1e6)

    def _entry(self, kind: str) -> list[object]:
        has_key = kind in {"line", "each"}
        return [self.limits[kind], 0, "to", None] if has_key else [self.limits[kind]]


KINDS: list[tuple[str, ...]] = [
    ("rate", "all"), ("rate",), ("all",), ("rate", "each"), ("each",), ("each", "all"),
    ("line",), ("line", "all"), ("line", "rate"), (),
]  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=4, unique=True))
    functions = draw(st.lists(names, min_size=4, max_size=4, unique=True))
    limits = draw(st.lists(names, min_size=4, max_size=4, unique=True))
    places = st.integers(0, len(kinds) - 1)
    return Plan(
        handlers=[(f"m.{func}", those) for func, those in zip(functions, kinds, strict=False)],
        limits=dict(zip(["line", "rate", "each", "all"], limits, strict=True)),
        most={"each": draw(st.integers(1, 2)), "all": draw(st.integers(1, 3))},
        interval=draw(st.integers(1, 3)),
        tasks=draw(st.lists(st.tuples(places, st.sampled_from("xyz")), min_size=5, max_size=30)),
        durations=draw(st.lists(st.sampled_from([1, 1, 2, 8]), min_size=4, max_size=4)),
        codes=draw(st.integers(1, 2)),
    )


def few_at_once() -> script_loader.ScriptLibrary:
    """The scripts, with another number of slots that one of them gives."""
    grants = script_loader.SHIPPED.text("include/grants")
    changed, count = re.subn(r"SERVED_AT_ONCE = \d+", f"SERVED_AT_ONCE = {AT_ONCE}", grants)
    assert count == 1
    return script_loader.ScriptLibrary({"include/grants": changed})

"""Runs measurements: every contender in turn, round after round, each with a limit in time."""

import math
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import FULL, Case, Figures, Measurement, Scale, Variant


class TimeLimitExceeded(Exception):
    """A measurement took too long."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One round of one variant of one measurement, of one contender on one server."""

    measurement: Measurement
    server: str
    binary: Path
    contender: Contender
    scale: Scale
    variant: Variant
    round: int

    @property
    def words(self) -> str:
        """What is done, in a line."""
        details = ", ".join(f"{name} {value}" for name, value in self.variant.items())
        return (
            f"{self.measurement.name}: {self.contender.title} on {self.server} ({details}) "
            f"round {self.round + 1}"
        )

    @property
    def usual_seconds(self) -> float:
        """About how long it takes, as its measurement says."""
        quick = self.measurement.quick
        return quick.seconds if quick and self.scale.is_quick else self.measurement.seconds


def steps(
    measurements: Sequence[Measurement],
    servers: dict[str, Path],
    contenders: Sequence[Contender],
    *,
    quick: bool,
    rounds: int,
) -> Iterator[Step]:
    """All that is to be done, in order. Of each round every contender is measured once, so that a
    slow hour of the machine is nobody's alone."""
    for measurement in measurements:
        scale, longest_interval = FULL, math.inf
        if quick:
            if measurement.quick is None:
                continue
            scale = Scale(measurement.quick.part)
            longest_interval = measurement.quick.longest_interval
        for server, binary in servers.items():
            for round in range(min(rounds, measurement.rounds or rounds)):
                for contender in contenders:
                    if contender.only and measurement.name not in contender.only:
                        continue
                    if contender.interval > longest_interval:
                        continue
                    for variant in measurement.variants(contender, scale):
                        yield Step(
                            measurement=measurement,
                            server=server,
                            binary=binary,
                            contender=contender,
                            scale=scale,
                            variant=variant,
                            round=round,
                        )


def run(step: Step, *, within: float = math.inf) -> Figures | None:
    """Measure; None if it may take longer than `within` seconds, and does.

    What goes wrong becomes `error` in the figures: the others are still measured.
    """
    began = time.time()
    limit = step.measurement.limit
    case = Case(contender=step.contender, binary=step.binary, variant=step.variant)
    try:
        with _limited(min(limit, within)):
            figures = step.measurement.measure(case)
    except TimeLimitExceeded:
        if within < limit:
            return None
        figures = {"error": f"not done within {limit:g} s"}
    except Exception as error:
        figures = {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()}
    return figures | {"began": round(began), "took": time.time() - began}


def not_run(error: str) -> Figures:
    """The figures of a step that cannot be measured."""
    return {"error": error, "began": round(time.time()), "took": 0.0}


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitExceeded

    before: Callable[[int, FrameType | None], object] | int | None
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

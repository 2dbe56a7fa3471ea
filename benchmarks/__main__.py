"""The laboratory's command: `make bench`, or `python -m benchmarks`. See benchmarks/README.md."""

import argparse
import importlib
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.lab import machine, plan, strays
from benchmarks.lab.contender import Contender, find_contenders
from benchmarks.lab.environments import Environment
from benchmarks.lab.measurement import PIECE, Figures, Measurement
from benchmarks.lab.results import Record, Results

RESULTS = Path(__file__).parent / "results.json"
MEASUREMENTS = ("schedule_rate", "memory", "lateness", "lateness_pending", "burst", "crash",
                "listeners", "shares", "cores", "idle", "keepalive", "scripts",
                "fleet", "two_workers", "server_restart", "series", "recurring", "inserts",
                "commit_lag", "commit_crash", "ledger_pass", "ledger_ahead", "ledger_idle",
                "unledgered")  # fmt: skip


def read_options(contenders: dict[str, Contender], servers: dict[str, Path]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure expirebridge and its peers. What the file of results holds already is "
        "not measured again.",
    )

    def several(option: str, known: Iterable[str], default: Sequence[str]) -> None:
        told = f"of {', '.join(known)} (default: {'all' if len(default) > 1 else default[0]})"
        parser.add_argument(
            option, nargs="+", choices=known, default=default, metavar="NAME", help=told
        )

    several("--contenders", contenders, list(contenders))
    several("--measure", MEASUREMENTS, MEASUREMENTS)
    several("--server", servers, [machine.EMBEDDED])
    parser.add_argument(
        "--quick", action="store_true", help="make fewer tasks, in one round, where that is short"
    )
    parser.add_argument(
        "--rounds", type=int, help="whose median is taken; some measurements have one (default: 3)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file that they are in")
    parser.add_argument(
        "--beside",
        metavar="WORDS",
        default="",
        help="measure although something else works here: what it is",
    )
    parser.add_argument("--list", action="store_true", help="say what would be done, and stop")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--next", action="store_true", help="go on with one measurement, for 15 minutes at most"
    )
    which.add_argument(
        "--again", choices=("all", "failed"), help="measure these, although the file holds them"
    )
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 1 if options.quick else 3
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def find_measurement(name: str) -> Measurement:
    """A measurement by the name of its file."""
    found: Measurement = importlib.import_module(f"benchmarks.measurements.{name}").MEASUREMENT
    return found


def main() -> int:
    """Measure what is asked for and not there yet; 1 if anything could not be measured."""
    # A polite end, so that all that was started here is stopped, in a shell's background too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    contenders, servers = find_contenders(), machine.find_servers()
    options = read_options(contenders, servers)
    results = Results(options.results, machine.Here.find())
    todo = [
        step
        for step in plan.steps(
            [find_measurement(name) for name in options.measure],
            {name: servers[name] for name in options.server},
            [contenders[name] for name in options.contenders],
            quick=options.quick,
            rounds=options.rounds,
        )
        if _is_wanted(results.find(step), options.again)
    ]
    if options.list:
        for step in todo:
            print(f"{step.words}: about {results.seconds(step):.0f} s")
        print(_left(todo, results))
        return 0
    return measure(todo, results, piece=options.next, beside=options.beside)


def _is_wanted(found: Record | None, again: str | None) -> bool:
    if found is None or again == "all":
        return True
    return again == "failed" and "error" in found


def _left(todo: Sequence[plan.Step], results: Results) -> str:
    """How much is still to be done."""
    if not todo:
        return "Steps left: 0."
    minutes = sum(results.seconds(step) for step in todo) / 60
    counts = Counter(step.measurement.name for step in todo)
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"Steps left: {len(todo)} ({each}), about {minutes:.0f} minutes."


def measure(todo: list[plan.Step], results: Results, *, piece: bool, beside: str) -> int:
    """Measure step by step, and keep each result at once.

    `piece`: only steps of the first measurement, and none for which less time is left than it
    usually takes. Without `beside`, only while all else is idle.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    steps = [step for step in todo if not piece or step.measurement is todo[0].measurement]
    began, done, failures = time.monotonic(), 0, 0
    unprepared: dict[str, str] = {}
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(steps))
        for step in steps:
            remains = began + PIECE - time.monotonic() if piece and done else math.inf
            if remains < results.seconds(step):
                break
            progress.update(bar, description=step.words)
            if step.contender.name not in unprepared:
                unprepared[step.contender.name] = prepare(step.contender, results)
            if not beside:
                _stop_if_busy()
            error = unprepared[step.contender.name]
            figures = plan.not_run(error) if error else plan.run(step, within=remains)
            if figures is None:  # The next call begins with it, and so gives it more time.
                break
            results.add(step, figures, beside=beside)
            done += 1
            failures += "error" in figures
            console.print(
                f"{step.words}: {_line(figures)}", highlight=False, markup=False, soft_wrap=True
            )
            progress.advance(bar)
    print(_left(todo[done:], results))
    return 1 if failures else 0


def prepare(contender: Contender, results: Results) -> str:
    """Install a contender's packages, and note their versions; return the error, if any."""
    environment = Environment(contender)
    try:
        environment.make()
        results.describe(contender, environment.versions())
    except (RuntimeError, OSError) as error:
        return f"its packages cannot be installed\n{error}"
    return ""


def _stop_if_busy() -> None:
    if others := strays.find():
        sys.exit(
            f"not measured, for something else works here: {', '.join(others)}. Stop it, "
            "and give the same command again; or say with --beside what it is"
        )


def _line(figures: Figures) -> str:
    """The figures in a line."""
    if "error" in figures:
        return str(figures["error"])
    words = (f"{name} {_cell(value)}" for name, value in figures.items() if name != "began")
    return ", ".join(words)


def _cell(value: object) -> str:
    match value:
        case dict():
            parts = {key: value[key] for key in ("50", "99", "100") if key in value} or value
            return "(" + ", ".join(f"{key}: {_cell(part)}" for key, part in parts.items()) + ")"
        case list():
            return "(" + ", ".join(_cell(part) for part in value) + ")"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


if __name__ == "__main__":
    sys.exit(main())

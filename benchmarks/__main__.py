"""The laboratory's command: `make bench`, or `python -m benchmarks`. See benchmarks/README.md."""

import argparse
import importlib
import signal
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.lab import machine, plan, strays
from benchmarks.lab.contender import Contender, find_contenders
from benchmarks.lab.environments import Environment
from benchmarks.lab.measurement import Figures, Measurement, Scale
from benchmarks.lab.results import Results

FOLDER = Path(__file__).parent
MEASUREMENTS = ("schedule_rate", "memory", "lateness", "lateness_pending", "burst", "crash",
                "listeners", "shares", "cores", "idle", "keepalive", "scripts",
                "fleet", "two_workers", "server_restart", "series", "recurring", "inserts",
                "commit_lag", "commit_crash", "ledger_pass", "ledger_idle",
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
    for option, kind, default, told in (
        ("--rounds", int, 3, "whose median is taken; some measurements have one (default: 3)"),
        ("--scale", float, 1.0, "part of the full number of tasks, to try things out (default: 1)"),
        ("--minutes", float, float("inf"), "begin nothing more after this time"),
        ("--results", Path, None, "default: benchmarks/results/run.json, or scale-N.json"),
    ):
        parser.add_argument(option, type=kind, default=default, help=told)
    parser.add_argument(
        "--again", choices=("all", "failed"), help="measure these, although the file holds them"
    )
    parser.add_argument(
        "--beside", metavar="WORDS", help="measure although something else works here: what it is"
    )
    parser.add_argument("--list", action="store_true", help="say what would be done, and stop")
    options = parser.parse_args()
    if options.rounds < 1 or not 0 < options.scale <= 1:
        parser.error("--rounds must be at least 1, --scale above 0 and at most 1")
    if options.results is None:
        name = "run" if options.scale == 1 else f"scale-{options.scale:g}"
        options.results = FOLDER / "results" / f"{name}.json"
    return options


def find_measurement(name: str) -> Measurement:
    """A measurement by the name of its file."""
    found: Measurement = importlib.import_module(f"benchmarks.measurements.{name}").MEASUREMENT
    return found


def main() -> int:
    """Measure what is asked for and not there yet; 1 if anything could not be measured."""
    # A polite end, so that all that was started here is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    contenders, servers = find_contenders(), machine.find_servers()
    options = read_options(contenders, servers)
    try:
        results = Results(options.results, scale=options.scale)
        results.measured_on(machine.describe())
    except ValueError as error:
        sys.exit(f"{error}; name another file with --results")
    todo = [
        step
        for step in plan.steps(
            [find_measurement(name) for name in options.measure],
            {name: servers[name] for name in options.server},
            [contenders[name] for name in options.contenders],
            scale=Scale(options.scale),
            rounds=options.rounds,
        )
        if _is_wanted(step.find(results), options.again)
    ]
    if options.list:
        print(*(step.words for step in todo), sep="\n")
        return 0
    if options.beside:
        results.document["beside"] = options.beside
    # A small run tries things out; nobody quotes its figures.
    alone = options.scale == 1 and not options.beside
    return measure(todo, results, minutes=options.minutes, alone=alone)


def _is_wanted(found: Figures | None, again: str | None) -> bool:
    if found is None or again == "all":
        return True
    return again == "failed" and "error" in found


def measure(todo: list[plan.Step], results: Results, *, minutes: float, alone: bool) -> int:
    """Measure step by step, and keep each result at once; `alone`: only while all else is idle."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    failures = 0
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("environments", total=len(todo))
        missing = _prepare(todo, results)
        for name, error in missing.items():
            console.out(f"{name} is left out, for its environment cannot be made:\n{error}")
        ready = [step for step in todo if step.contender.name not in missing]
        progress.update(bar, total=len(ready))
        for step in ready:
            if progress.tasks[0].elapsed and progress.tasks[0].elapsed > minutes * 60:
                console.print(f"{minutes:g} minutes are over; the same command goes on from here")
                break
            if alone and (others := strays.find()):
                sys.exit(
                    f"not measured, for something else works here: {', '.join(others)}. Stop it, "
                    "and give the same command again; or say with --beside what it is"
                )
            progress.update(bar, description=step.words)
            figures = plan.run(step)
            step.add(results, figures)
            failures += "error" in figures
            console.print(
                f"{step.words}: {_line(figures)}", highlight=False, markup=False, soft_wrap=True
            )
            progress.advance(bar)
    return 1 if failures or missing else 0


def _prepare(todo: list[plan.Step], results: Results) -> dict[str, Exception]:
    """Make the environments, and note what is measured; return what could not be made."""
    missing: dict[str, Exception] = {}
    for contender in {step.contender.name: step.contender for step in todo}.values():
        environment = Environment(contender)
        try:
            environment.make()
        except (RuntimeError, OSError) as error:
            missing[contender.name] = error
            continue
        results.document["contenders"][contender.name] = {
            "title": contender.title,
            "kind": contender.kind,
            "settings": contender.settings,
            "concurrency": contender.concurrency,
            "worker": contender.worker,
            "documentation": contender.documentation,
            "versions": environment.versions(),
        }
    for step in todo:
        results.document["servers"].setdefault(step.server, machine.version_of(step.binary))
    results.document["date"] = datetime.now(UTC).date().isoformat()
    results.write()
    return missing


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

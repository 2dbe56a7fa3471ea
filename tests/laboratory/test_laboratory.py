"""The laboratory, on ours and the bare subscriber, at a size that takes seconds."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as laboratory
from benchmarks.lab import environments
from benchmarks.lab.contender import find_contenders
from benchmarks.lab.machine import Here
from benchmarks.lab.measurement import Case
from benchmarks.lab.results import Results
from benchmarks.measurements import (
    burst,
    commit_crash,
    commit_lag,
    cores,
    inserts,
    ledger_idle,
    ledger_pass,
    unledgered,
)
from expirebridge.embedded.server import embedded_binary
from tests.kit.databases import POSTGRESQL, binary_of
from tests.kit.processes import ROOT

pytestmark = pytest.mark.rest

POSTGRESQL_IS_HERE = binary_of(POSTGRESQL) is not None


LAB = [sys.executable, "-m", "benchmarks", "--quick", "--beside", "tests", "--results"]


def lab(file: Path, *options: str) -> str:
    command = [*LAB, str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(file: Path) -> list[tuple[str, str]]:
    records = json.loads(file.read_text())["records"]
    return [(record["measurement"], record["contender"]) for record in records]


@pytest.mark.parametrize("name", ["expirebridge", "bare_subscriber"])
def test_each_task_of_a_burst_is_accounted_for(name: str) -> None:
    contender = find_contenders()[name]
    variant = {"tasks": 20, "handler": "async", "patience": 60.0}

    figures = burst.measure(Case(contender=contender, binary=embedded_binary(), variant=variant))

    assert figures["asked"] == figures["ran"] == 20
    assert figures["lost"] == figures["twice"] == figures["early"] == figures["unasked"] == 0
    assert figures["per_second"] > 0


def test_tasks_that_compute_are_run_by_all_workers() -> None:
    contender = find_contenders()["expirebridge"]
    variant = {"kind": "computing", "tasks": 4, "handler": "plain", "workers": 2}

    figures = cores.measure(Case(contender=contender, binary=embedded_binary(), variant=variant))

    assert figures["asked"] == figures["ran"] == 4
    # A core that is shared with another process, or whose speed varies, may halve it.
    assert round(figures["worker_cpu_seconds"], 6) >= 4 * cores.SECONDS / 2


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    lab(file, "--measure", "schedule_rate", "--contenders", "expirebridge")

    todo = lab(
        file, "--measure", "schedule_rate", "--contenders", "expirebridge", "server_set", "--list"
    )

    assert "SET ... PX" in todo
    assert "expirebridge" not in todo
    [record] = json.loads(file.read_text())["records"]
    assert record["single_per_second"] > 0
    assert record["bulk_per_second"] > 0
    assert record["scale"] < 1


def test_each_call_goes_on_with_the_next_measurement_and_tells_what_is_left(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    options = ("--next", "--measure", "schedule_rate", "memory", "--contenders", "server_script",
               "server_set")  # fmt: skip

    first = lab(file, *options)
    assert measured(file) == [("schedule_rate", name) for name in ("server_script", "server_set")]
    second = lab(file, *options)
    third = lab(file, *options)

    assert re.fullmatch(r"Steps left: 1 \(memory 1\), about \d+ minutes\.\n", first)
    assert second == third == "Steps left: 0.\n"
    assert measured(file)[2:] == [("memory", "server_set")]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_loses_one_step(tmp_path: Path, sent: signal.Signals) -> None:
    file = tmp_path / "results.json"
    options = ["--next", "--measure", "schedule_rate", "--contenders", "server_script",
               "server_set"]  # fmt: skip
    command = [*LAB, str(file), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stderr is not None
        next(line for line in run.stderr if "per_second" in line)  # the first step is done
        run.send_signal(sent)
        run.communicate()
    assert run.returncode in {128 + sent, -sent}
    [kept] = measured(file)

    assert lab(file, *options) == "Steps left: 0.\n"
    assert measured(file)[0] == kept
    assert len(measured(file)) == 2


def test_a_contender_that_cannot_be_installed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    contender = replace(find_contenders()["arq"], dependencies=("./no-such-package",))
    results = Results(tmp_path / "results.json", Here(machine="M", system="S", commit="abc"))

    error = laboratory.prepare(contender, results)

    assert error.startswith("its packages cannot be installed\n")
    assert "no-such-package" in error


def ledger_case(**variant: object) -> Case:
    return Case(contender=find_contenders()["ledger"], binary=embedded_binary(), variant=variant)


def test_what_a_task_adds_to_a_transaction_is_measured() -> None:
    figures = inserts.measure(ledger_case(database="sqlite", transactions=20, turns=1))

    assert figures.keys() == inserts.WAYS.keys()
    assert figures["row_and_100_tasks"]["cpu_ms"] > figures["row"]["cpu_ms"]


@pytest.mark.skipif(not POSTGRESQL_IS_HERE, reason="needs PostgreSQL")
def test_tasks_of_transactions_are_followed_to_redis_and_back() -> None:
    variant = {"transactions": 20, "seconds": 0.2, "poked": True, "partitions": 2}

    figures = commit_lag.measure(ledger_case(**variant))

    assert (figures["asked"], figures["lost"], figures["twice"]) == (20, 0, 0)
    for name in ("begin_ms", "row_ms", "server_ms"):
        assert figures[name]["50"] <= figures[name]["100"] < 10_000


@pytest.mark.parametrize("killed", ["anywhere", "after a commit"])
def test_each_order_of_a_killed_producer_is_held_against_its_task(killed: str) -> None:
    figures = commit_crash.measure(ledger_case(killed=killed, kills=1, database="sqlite"))

    assert figures["orders"] >= (commit_crash.FEW if killed == "after a commit" else 1)
    assert (figures["lost"], figures["unasked"]) == (0, 0)


@pytest.mark.skipif(not POSTGRESQL_IS_HERE, reason="needs PostgreSQL")
def test_it_is_measured_how_many_rows_are_carried() -> None:
    figures = ledger_pass.measure(ledger_case(rows=300, again=False))["new"]

    assert figures["per_second"] > 0
    assert figures["statements"] > 1
    assert figures["lateness_ms"]["100"] is not None


@pytest.mark.skipif(not POSTGRESQL_IS_HERE, reason="needs PostgreSQL")
def test_waiting_with_a_ledger_is_measured() -> None:
    figures = ledger_idle.measure(ledger_case(partitions=2, seconds=1.0, starting=1.0))

    assert figures["statements_per_second"] > 0
    assert figures["commands_per_second"] > 0


def test_tasks_without_a_row_are_measured() -> None:
    contender = find_contenders()["expirebridge"]
    variant = {"code": "present", "pending": 100, "burst": 100, "tasks": 20, "seconds": 0.2}

    figures = unledgered.measure(
        Case(contender=contender, binary=embedded_binary(), variant=variant)
    )

    assert (figures["ran"], figures["lost"]) == (100, 0)
    assert figures["script_us_per_task"] > 0

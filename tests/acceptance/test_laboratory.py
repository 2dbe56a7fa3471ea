"""The laboratory, on ours and the bare subscriber, at a size that takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lab.contender import find_contenders
from benchmarks.lab.measurement import Case
from benchmarks.measurements import burst, cores
from expirebridge.embedded import embedded_binary
from tests.kit.processes import ROOT


def lab(*options: str) -> str:
    command = [sys.executable, "-m", "benchmarks", "--scale", "0.002", "--rounds", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["expirebridge", "bare_subscriber"])
def test_each_task_of_a_burst_is_accounted_for(name: str) -> None:
    contender = find_contenders()[name]
    variant = {"tasks": 20, "handler": "async"}

    figures = burst.measure(Case(contender=contender, binary=embedded_binary(), variant=variant))

    assert figures["asked"] == figures["ran"] == 20
    assert figures["lost"] == figures["twice"] == figures["early"] == figures["unasked"] == 0
    assert figures["per_second"] > 0


def test_tasks_that_compute_are_run_by_all_workers() -> None:
    contender = find_contenders()["expirebridge"]
    variant = {"kind": "computing", "tasks": 4, "handler": "plain", "workers": 2}

    figures = cores.measure(Case(contender=contender, binary=embedded_binary(), variant=variant))

    assert figures["asked"] == figures["ran"] == 4
    assert figures["worker_cpu_seconds"] >= 4 * cores.SECONDS - 0.02  # it is counted in hundredths


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    options = ("--measure", "schedule_rate", "--results", str(file))
    lab(*options, "--contenders", "expirebridge")

    todo = lab(*options, "--contenders", "expirebridge", "server_set", "--list")

    assert "SET ... PX" in todo
    assert "expirebridge" not in todo
    [record] = json.loads(file.read_text())["records"]
    assert record["single_per_second"] > 0
    assert record["bulk_per_second"] > 0

"""What the laboratory's verdict says of journals, and what it reads in a contender's file."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import designs_page, report, shown, summary
from benchmarks.__main__ import MEASUREMENTS, RESULTS, find_measurement
from benchmarks.kit.cron import next_run
from benchmarks.lab import strays
from benchmarks.lab.contender import Contender, find_contenders
from benchmarks.lab.machine import Here, measured_commit
from benchmarks.lab.measurement import PIECE, Case, Figures, Measurement, Scale
from benchmarks.lab.plan import Step, run, steps
from benchmarks.lab.records import Records
from benchmarks.lab.results import Results
from benchmarks.lab.verdict import Dues, Runs, Verdict, lateness, percentile
from expirebridge.embedded.server import embedded_binary
from tests.kit.cases import each

DESIGNS = [found for found in find_contenders().values() if found.kind == "design"]
DUES = Dues(first=0, count=4, due_ms=100_000, spread_ms=400)


def journal(**changes: list[str]) -> list[str]:
    """A journal in which each of the four tasks ran once, 5 ms late, but for the changes."""
    lines = []
    for number in DUES.numbers:
        at = DUES.due(number) + 0.005
        own = [f"began {number} {at!r} 77\n", f"ended {number} {at + 0.001!r} 77\n"]
        lines += changes.get(f"task_{number}", own)
    return lines


def verdict(lines: list[str]) -> Verdict:
    return Verdict.of([DUES], Runs.of(lines), issued=4)


def test_tasks_that_ran_once_are_all_well() -> None:
    assert verdict(journal()) == Verdict(asked=4, ran=4, lost=0, twice=0, early=0, unasked=0)


def test_a_task_without_a_run_is_lost() -> None:
    lines = journal(task_2=[])

    assert (verdict(lines).ran, verdict(lines).lost) == (3, 1)
    assert lateness(DUES, Runs.of(lines))[-1] == math.inf


def test_a_task_that_began_but_did_not_end_is_lost() -> None:
    assert verdict(journal(task_2=["began 2 100.3 77\n"])).lost == 1


def test_a_task_that_began_again_ran_twice() -> None:
    lines = [*journal(), "began 1 103.0 78\n", "ended 1 103.1 78\n"]

    assert (verdict(lines).twice, verdict(lines).lost) == (1, 0)


def test_a_task_that_began_before_its_time_is_early() -> None:
    assert verdict(journal(task_3=["began 3 100.1 77\n", "ended 3 100.2 77\n"])).early == 1


def test_a_run_that_nobody_asked_for_is_counted() -> None:
    assert verdict([*journal(), "began 1000000001 100.1 77\n"]).unasked == 1


def test_what_only_asked_whether_the_worker_is_up_and_half_a_line_are_left_out() -> None:
    lines = [*journal(), "began -1 90.0 77\n", "ended -1 90.0 77\n", "began 3 1"]

    assert verdict(lines) == verdict(journal())


def test_lateness_is_in_order_and_in_milliseconds() -> None:
    late = lateness(DUES, Runs.of(journal(task_0=["began 0 100.9 77\n"])))

    assert late == pytest.approx([5, 5, 5, 900])
    assert percentile(late, 75) == pytest.approx(5)
    assert percentile(late, 99) == pytest.approx(900)


@each("contender", find_contenders().values())
def test_each_contender_says_what_it_is(contender: Contender) -> None:
    assert contender.settings
    assert contender.documentation
    assert contender.runs_tasks or contender.kind == "limit"
    assert set(contender.handlers) <= {"async", "plain"}
    assert (contender.environment == "lab") == (contender.kind != "peer")
    assert contender.place in {"server", "database", "file", "worker"}
    assert set(contender.only) <= set(MEASUREMENTS)
    assert bool(contender.only) == bool(contender.because)
    if contender.kind == "peer":
        assert any("==" in package or "@" in package for package in contender.dependencies)


@each("contender", DESIGNS)
def test_a_design_is_short_and_has_its_own_libraries_only(contender: Contender) -> None:
    source = contender.file.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 100
    assert "expirebridge" not in source
    assert not contender.dependencies


def test_a_contender_is_measured_where_it_takes_part() -> None:
    wheel = find_contenders()["wheel_of_sets"]
    found = steps(
        [find_measurement(name) for name in MEASUREMENTS],
        {"embedded": Path()},
        [wheel],
        quick=False,
        rounds=1,
    )
    assert {step.measurement.name for step in found} == set(wheel.only)


def test_a_quick_run_waits_for_what_looks_once_a_minute_only_to_see_how_late_it_is() -> None:
    measurements = [find_measurement(name) for name in MEASUREMENTS]
    found = steps(
        measurements,
        {"embedded": Path()},
        [find_contenders()["cron_scan_minute"]],
        quick=True,
        rounds=1,
    )
    assert {step.measurement.name for step in found} == {"lateness"}


def test_cron_runs_at_full_intervals() -> None:
    quarter_past_nine = 1_800_000_900.0 - 1_800_000_900 % 3600 + 9 * 3600 + 900.5

    runs = [next_run(interval, quarter_past_nine) - quarter_past_nine for interval in (3600, 60, 1)]

    assert runs == [2699.5, 59.5, 0.5]
    assert next_run(60, 120.0) == 180.0


def test_a_scale_leaves_at_least_one_task_and_none_of_none() -> None:
    assert [Scale(0.001)(count) for count in (100_000, 10, 0)] == [100, 1, 0]


def results(file: Path, *, machine: str = "M", commit: str = "abc") -> Results:
    return Results(file, Here(machine=machine, system="Linux 6, Python 3", commit=commit))


def step(name: str, *, measurement: str | Measurement = "memory", **changes: Any) -> Step:
    """A step of a quick run, on a server that says its version."""
    found = find_measurement(measurement) if isinstance(measurement, str) else measurement
    contender = find_contenders()[name]
    assert found.quick is not None
    scale = Scale(found.quick.part)
    of_step = Step(
        measurement=found, server="embedded", binary=embedded_binary(), contender=contender,
        scale=scale, variant=found.variants(contender, scale)[0], round=0,
    )  # fmt: skip
    return replace(of_step, **changes)


def test_results_are_found_again_and_what_is_infinite_is_null(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results(file).add(step("arq"), {"lateness_ms": {"100": math.inf}})

    found = results(file).find(step("arq"))

    assert found is not None
    assert found["lateness_ms"] == {"100": None}
    assert (found["machine"], found["commit"], found["scale"]) == ("M", "abc", 0.2)
    assert results(file, machine="N").find(step("arq")) is None


def test_ours_is_measured_for_each_commit_and_a_peer_for_each_version(tmp_path: Path) -> None:
    ours, peer = step("expirebridge"), step("arq")
    for one in (ours, peer):
        results(tmp_path / "results.json").add(one, {"bytes_per_task": 1.0})
    later = results(tmp_path / "results.json", commit="def")
    newer = step("arq", contender=replace(peer.contender, dependencies=("arq==99",)))

    assert later.find(ours) is None
    assert later.find(peer) is not None
    assert later.find(newer) is None
    later.add(ours, {"bytes_per_task": 2.0})
    later.add(newer, {"bytes_per_task": 3.0})

    kept = [record["bytes_per_task"] for record in later.document["records"]]
    assert kept == [2.0, 3.0]


def test_a_variant_that_a_measurement_has_no_more_is_dropped(tmp_path: Path) -> None:
    found = results(tmp_path / "results.json")
    found.add(step("arq", variant={"tasks": 7}), {})
    found.add(step("arq", measurement="lateness"), {})
    found.add(step("arq"), {})
    found.add(step("arq", round=1), {})

    kept = [(record["measurement"], record["round"]) for record in found.document["records"]]
    assert kept == [("lateness", 0), ("memory", 0), ("memory", 1)]


def test_a_step_takes_what_it_took_before_on_any_machine(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert results(file).seconds(step("arq")) == step("arq").usual_seconds
    results(file, machine="N").add(step("arq"), {"took": 7.5})

    assert results(file).seconds(step("arq")) == 7.5


def test_a_step_that_has_less_time_than_its_limit_is_left_to_the_next_call() -> None:
    started: list[Case] = []

    def measure(case: Case) -> Figures:
        started.append(case)
        signal.pause()
        raise AssertionError

    asleep = replace(find_measurement("memory"), measure=measure, limit=0.2)
    assert run(step("arq", measurement=asleep), within=0.1) is None
    figures = run(step("arq", measurement=asleep))

    assert figures is not None
    assert figures["error"] == "not done within 0.2 s"
    assert len(started) == 2


@each("name", MEASUREMENTS)
def test_no_step_may_take_longer_than_a_piece(name: str) -> None:
    assert find_measurement(name).limit <= PIECE


def test_the_commit_is_the_last_that_changed_what_is_measured(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert measured_commit(tmp_path / "nowhere") == "unknown"
    git("init", "--quiet")
    (tmp_path / "redis.conf").write_text("save ''")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    first = git("log", "-1", "--abbrev=10", "--format=%h")
    (tmp_path / "results.json").write_text("{}")
    git("add", ".")
    git("commit", "--quiet", "-m", "two")

    assert measured_commit(tmp_path) == first
    (tmp_path / "redis.conf").write_text("save 60 1")
    assert measured_commit(tmp_path) == f"{first}-dirty"


WHERE: dict[str, Any] = {
    "machine": "a CPU, 2 cores, 24 GiB", "system": "Linux 6, Python 3", "server": "embedded",
    "server_version": "Valkey 9", "commit": "abc", "beside": "", "scale": 1.0,
    "began": 1_767_268_800, "took": 0.0,
}  # fmt: skip
SETTINGS: dict[str, Any] = {"settings": "defaults", "only": []}


def records() -> Records:
    """Two rounds of ours, and a peer that could not be measured."""
    late: list[dict[str, float | None]] = [
        {"50": 1.0, "99": 3.0, "100": 9.0},
        {"50": 2.0, "99": 4.0, "100": None},
    ]
    counts = {"asked": 10, "ran": 9, "lost": 1, "twice": 0, "early": 0, "unasked": 0}
    key = WHERE | {"measurement": "lateness", "variant": {"pending": 0}}
    ours = [
        key | counts | {"contender": "ours", "round": n, "lateness_ms": late[n]} for n in (0, 1)
    ]
    peer = key | {"contender": "peer", "round": 0, "error": "not done within 9 s\nand more"}
    return Records(
        {
            "contenders": {
                "peer": {"title": "a peer", "kind": "peer"} | SETTINGS,
                "ours": {"title": "expirebridge", "kind": "ours"} | SETTINGS,
            },
            "records": [peer, *ours],
        }
    )


def test_the_page_shows_medians_the_worst_and_what_could_not_be_measured() -> None:
    [_, _, ours, peer] = report.lateness(records()).splitlines()

    assert ours == "| expirebridge | 1.5 ms | 3.5 ms | never | 18 of 20 | 0 | 0 | 2 |"
    assert peer == "| a peer | not done within 9 s | - | - | - | - | - | - |"


def test_the_page_says_where_tasks_ran() -> None:
    found = records()
    variants = [
        {"kind": "computing", "handler": "plain"},
        {"kind": "computing", "handler": "plain", "workers": 2},
        {"kind": "waiting", "handler": "async", "workers": 1},
    ]
    figures = {"per_second": 20.0, "server_cpu_seconds": 0.5, "worker_cpu_seconds": 30.0}
    for record, variant in zip(found.records, variants, strict=True):
        record.pop("error", None)
        record.update({"measurement": "cores", "variant": variant, "lost": 0} | figures)
        record.setdefault("twice", 0)

    computing, waiting = report.cores(found).split("50 ms of `asyncio.sleep` in each task:")

    assert "| expirebridge, in threads, 2 workers | 20 | 0 | 0 | 0.5 | 30 | 1 |" in computing
    assert "| a peer, its defaults | 20 | 0 | 0 | 0.5 | 30 | 1 |" in computing
    assert "| expirebridge, on the event loop, one worker | 20 | 0 | 0 | 0.5 | 30 | 1 |" in waiting


def measured(**changes: Any) -> Records:
    """The records, as changed."""
    found = records()
    for record in found.records:
        record.update(changes)
    return found


def together(*parts: Records) -> Records:
    everything = [record for part in parts for record in part.records]
    return Records({"contenders": records().contenders, "records": everything})


def test_a_table_says_where_and_when_and_of_what_code_it_was_measured() -> None:
    text = report.section("lateness", together(measured(beside="it rained")))

    assert text == (
        f"{report.lateness(records())}\n\n*Measured: 2026-01-01; a CPU, 2 cores, 24 GiB; "
        "Linux 6, Python 3; Valkey 9; expirebridge at `abc`; while it rained.*"
    )
    assert report.section("idle", records()) == (
        '*Not measured yet: `make bench ARGS="--measure idle"` does it.*'
    )


def test_a_table_is_of_the_machine_where_most_was_measured_and_then_of_the_last() -> None:
    one, other = measured(machine="one"), measured(machine="other", began=WHERE["began"] + 9)
    [ours, _, peer] = [other.records[1], other.records[2], other.records[0]]
    assert peer["contender"] == "peer"

    def shown_of(*parts: Records) -> set[str]:
        return {record["machine"] for record in together(*parts).of("lateness").records}

    assert shown_of(other, one) == {"other"}
    other.records[:] = [ours]
    assert shown_of(other, one) == {"one"}


def test_full_results_are_shown_before_quick_ones_of_the_same_machine() -> None:
    quick = measured(scale=0.3, began=WHERE["began"] + 9)

    assert "quick" not in report.section("lateness", together(records(), quick))
    text = report.section("lateness", quick)
    assert "; **quick: 0.3 of the tasks, one round**.*" in text


def test_another_server_is_named_and_comes_after_the_first() -> None:
    other = measured(server="redis-server", server_version="Redis 7")
    other.records[:] = [record for record in other.records if record["contender"] == "ours"]

    [_, _, ours, ours_there, _] = report.lateness(together(other, records())).splitlines()

    assert ours.startswith("| expirebridge |")
    assert ours_there.startswith("| expirebridge on Redis 7 |")


def test_the_page_names_who_is_ahead() -> None:
    found = records()
    for record in found.records:
        is_ours = record["contender"] == "ours"
        figure = {"bytes_per_task": 400.0 if is_ours else 200.0}
        record.pop("error", None)
        record.update({"measurement": "memory"} | figure)

    # What was measured on another server beside it says nothing of this.
    other = found.records[0] | {"server": "other", "server_version": "Redis 7"}
    found.records.append(other)

    assert report.section("ahead", found) == "- takes less of the server's memory: a peer (2 times)"


def test_why_a_contender_takes_part_in_some_measurements_only_stands_with_its_settings() -> None:
    about = {"settings": "defaults", "only": ["burst", "crash"], "because": "it knows no more"}

    assert shown.settings(about) == ("defaults; takes part in burst, crash only: it knows no more")


@pytest.mark.parametrize(("began", "together"), [(110, ""), (109, ""), (105, "burst of b")])
def test_what_was_measured_at_the_same_time_is_told(began: int, together: str) -> None:
    first = {"machine": "M", "measurement": "crash", "contender": "a", "began": 100, "took": 9.9}
    second = first | {"measurement": "burst", "contender": "b", "began": began, "took": 1.0}
    elsewhere = first | {"machine": "N"}
    found = Records({"contenders": {}, "records": [second, elsewhere, first]}).measured_together()
    assert found == (together and f"crash of a, {together}")


def test_every_blank_of_the_page_is_known() -> None:
    blanks = set(report.BLANK.findall(report.TEMPLATE.read_text(encoding="utf-8")))

    assert blanks == report.BLANKS.keys()


def test_the_tables_of_the_reference_are_those_of_the_results() -> None:
    found = Records(json.loads(RESULTS.read_text(encoding="utf-8")))
    text = summary.PAGE.read_text(encoding="utf-8")

    assert all(f"<!-- {name}: " in text for name in summary.TABLES)
    assert summary.filled(text, found) == text


def test_the_designs_have_a_page_of_their_own(tmp_path: Path) -> None:
    blanks = set(report.BLANK.findall(designs_page.TEMPLATE.read_text(encoding="utf-8")))
    assert blanks == designs_page.BLANKS.keys()

    found = records()
    found.contenders["peer"]["kind"] = "design"
    found.records += [record | {"measurement": "lateness_pending"} for record in found.records]
    designs_page.write(found, tmp_path)
    page = (tmp_path / "designs.md").read_text(encoding="utf-8")

    assert "| expirebridge | 1.5 ms | 3.5 ms | never | 18 of 20 | 0 | 0 | 2 |" in page
    assert "| a peer | not done within 9 s |" in page
    assert '*Not measured yet: `make bench ARGS="--measure idle"` does it.*' in page
    assert "a peer" not in report.lateness(found.of_kinds("ours", "peer"))


def test_a_process_that_works_beside_a_measurement_is_named() -> None:
    # A grandchild that its parent has left: a child of ours would count as the laboratory's own.
    endless = "print(__import__('os').getpid(), flush=True)\nwhile True: pass"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {endless!r}])"
    with subprocess.Popen([sys.executable, "-c", orphan], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.wait()
        try:
            # Where many others want a core, it may have less than a tenth of one for a second.
            looks = (found for _ in range(10) for found in strays.find())
            assert any(f"({pid})" in found for found in looks)
            assert not any(f"({os.getpid()})" in found for found in strays.find(0.1))
        finally:
            os.kill(pid, signal.SIGKILL)

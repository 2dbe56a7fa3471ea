"""What the laboratory's verdict says of journals, and what it reads in a contender's file."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import designs_page, report
from benchmarks.__main__ import MEASUREMENTS, find_measurement
from benchmarks.kit.cron import next_run
from benchmarks.lab import strays
from benchmarks.lab.contender import Contender, find_contenders
from benchmarks.lab.measurement import Scale
from benchmarks.lab.plan import steps
from benchmarks.lab.records import Records
from benchmarks.lab.results import Results
from benchmarks.lab.verdict import Dues, Runs, Verdict, lateness, percentile

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


@pytest.mark.parametrize("contender", find_contenders().values(), ids=lambda found: found.name)
def test_each_contender_says_what_it_is(contender: Contender) -> None:
    assert contender.settings
    assert contender.documentation
    assert contender.runs_tasks or contender.kind == "limit"
    assert set(contender.handlers) <= {"async", "plain"}
    assert (contender.environment == "lab") == (contender.kind != "peer")
    assert contender.place in {"server", "file", "worker"}
    assert set(contender.only) <= set(MEASUREMENTS)
    if contender.kind == "peer":
        assert any("==" in package or "@" in package for package in contender.dependencies)


@pytest.mark.parametrize("contender", DESIGNS, ids=lambda found: found.name)
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
        scale=Scale(0.01),
        rounds=1,
    )
    assert {step.measurement.name for step in found} == set(wheel.only)


def test_cron_runs_at_full_intervals() -> None:
    quarter_past_nine = 1_800_000_900.0 - 1_800_000_900 % 3600 + 9 * 3600 + 900.5

    runs = [next_run(interval, quarter_past_nine) - quarter_past_nine for interval in (3600, 60, 1)]

    assert runs == [2699.5, 59.5, 0.5]
    assert next_run(60, 120.0) == 180.0


def test_a_scale_leaves_at_least_one_task_and_none_of_none() -> None:
    assert [Scale(0.001)(count) for count in (100_000, 10, 0)] == [100, 1, 0]


def test_results_are_found_again_and_what_is_infinite_is_null(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    key = ("lateness", "embedded", "arq", {"pending": 0}, 0)
    Results(file, scale=1.0).add(*key, {"lateness_ms": {"100": math.inf}})

    found = Results(file, scale=1.0).find(*key)

    assert found is not None
    assert found["lateness_ms"] == {"100": None}
    with pytest.raises(ValueError, match="scale 1"):
        Results(file, scale=0.1)


def records() -> Records:
    """Two rounds of ours, and a peer that could not be measured."""
    late: list[dict[str, float | None]] = [
        {"50": 1.0, "99": 3.0, "100": 9.0},
        {"50": 2.0, "99": 4.0, "100": None},
    ]
    counts = {"asked": 10, "ran": 9, "lost": 1, "twice": 0, "early": 0, "unasked": 0}
    key = {"measurement": "lateness", "server": "embedded", "variant": {"pending": 0}}
    ours = [
        key | counts | {"contender": "ours", "round": n, "lateness_ms": late[n]} for n in (0, 1)
    ]
    peer = key | {"contender": "peer", "round": 0, "error": "not done within 9 s\nand more"}
    return Records(
        {
            "scale": 1.0,
            "servers": {"embedded": "Valkey 9"},
            "contenders": {
                "peer": {"title": "a peer", "kind": "peer"},
                "ours": {"title": "expirebridge", "kind": "ours"},
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
    for record, variant in zip(found.document["records"], variants, strict=True):
        record.pop("error", None)
        record.update({"measurement": "cores", "variant": variant, "lost": 0} | figures)
        record.setdefault("twice", 0)

    computing, waiting = report.cores(found).split("50 ms of `asyncio.sleep` in each task:")

    assert "| expirebridge, in threads, 2 workers | 20 | 0 | 0 | 0.5 | 30 | 1 |" in computing
    assert "| a peer, its defaults | 20 | 0 | 0 | 0.5 | 30 | 1 |" in computing
    assert "| expirebridge, on the event loop, one worker | 20 | 0 | 0 | 0.5 | 30 | 1 |" in waiting


def test_a_section_is_of_the_last_file_that_has_it_and_says_where_that_was() -> None:
    first, later = records(), records()
    for record in later.document["records"]:
        record["measurement"] = "idle"
    later.document |= {
        "date": "2026-01-02",
        "machine": dict.fromkeys(("cores", "processor", "memory_gib", "system", "python"), 4),
        "beside": "it rained",
    }

    assert report.section("lateness", [first, later]) == report.lateness(first)
    ours = report.section("idle", [first, later])
    assert ours.endswith(
        "Measured by itself until 2026-01-02, on 4 cores (4), 4, Python 4, while it rained."
    )
    assert report.section("idle", [first]) == "*Not measured.*"


def test_the_page_names_who_is_ahead() -> None:
    found = records()
    for record in found.document["records"]:
        is_ours = record["contender"] == "ours"
        figure = {"bytes_per_task": 400.0 if is_ours else 200.0}
        record.pop("error", None)
        record.update({"measurement": "memory"} | figure)

    # What was measured on another server beside it says nothing of this.
    other = found.document["records"][0] | {"server": "other"}
    found.document["servers"]["other"] = "Redis 7"
    found.document["records"].append(other)

    assert report.fill("ahead", found) == "- takes less of the server's memory: a peer (2 times)"


@pytest.mark.parametrize(("began", "together"), [(110, ""), (109, ""), (105, "burst of b")])
def test_what_was_measured_at_the_same_time_is_told(began: int, together: str) -> None:
    first = {"measurement": "crash", "contender": "a", "began": 100, "took": 9.9}
    second = {"measurement": "burst", "contender": "b", "began": began, "took": 1.0}
    found = Records({"records": [second, first]}).measured_together()
    assert found == (together and f"crash of a, {together}")


def test_results_of_another_machine_are_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    results = Results(file, scale=1.0)
    results.measured_on({"cores": 2})
    results.write()
    Results(file, scale=1.0).measured_on({"cores": 2})
    with pytest.raises(ValueError, match="another machine"):
        Results(file, scale=1.0).measured_on({"cores": 64})


def test_every_blank_of_the_page_is_known() -> None:
    blanks = set(report._BLANK.findall(report.TEMPLATE.read_text(encoding="utf-8")))

    assert blanks == report.BLANKS.keys()


def test_the_designs_have_a_page_of_their_own(tmp_path: Path) -> None:
    blanks = set(report._BLANK.findall(designs_page.TEMPLATE.read_text(encoding="utf-8")))
    assert blanks == designs_page.BLANKS.keys()

    found = records()
    found.document["contenders"]["peer"]["kind"] = "design"
    for about in found.document["contenders"].values():
        about["settings"] = "defaults"
    found.document |= {
        "date": "2026-01-01",
        "machine": dict.fromkeys(("cores", "processor", "memory_gib", "system", "python"), 2),
    }
    designs_page.write(found, tmp_path)
    page = (tmp_path / "designs.md").read_text(encoding="utf-8")

    assert "| expirebridge | 1.5 ms | 3.5 ms | never | 18 of 20 | 0 | 0 | 2 |" in page
    assert "| a peer | not done within 9 s |" in page
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

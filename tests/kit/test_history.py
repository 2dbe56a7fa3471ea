"""The history: what was written is read, whatever became of its writer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.history import (
    Cancelled,
    CutOff,
    Down,
    Ended,
    Event,
    Forgot,
    GaveUp,
    Killed,
    Made,
    Started,
    Stopped,
    Writer,
    read,
)
from tests.kit.processes import ROOT

EVENTS: list[Event] = [
    Made(id="t1", due=1000, attempts=2, at=10),
    Cancelled(id="t1", answer="running", at=11),
    Started(id="t1", run="r1", attempt=1, lapses=0, due=1000, pid=7, at=1000),
    Ended(id="t1", run="r1", how="raised", error="a \n newline", at=1010),
    Killed(pid=7, at=1020, until=1021),
    GaveUp(pid=7, at=1022),
    Stopped(pid=8, at=1030, until=5000),
    CutOff(pid=9, at=1035, until=5000),
    Forgot(at=1040, until=1050),
    Down(at=1060, until=1070),
]


def test_each_event_comes_back_as_it_was_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(*EVENTS[:2])
    for event in EVENTS[2:]:
        writer.write(event)
        assert read(tmp_path)[-1] == event
    assert read(tmp_path) == EVENTS


def test_the_time_and_the_process_are_noted_by_themselves(tmp_path: Path) -> None:
    event = Started(id="t1", run="r1", attempt=1, lapses=0, due=1000)
    assert event.pid == os.getpid()
    assert event.at <= Made(id="t1", due=1000, attempts=1).at


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    Writer(tmp_path).write(*EVENTS)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(whole)):
        file.write_bytes(whole[:length])
        assert read(tmp_path) == EVENTS[:-1]


@pytest.mark.parametrize(
    "broken",
    [b'{"event":"made","id":', b"", b"[]", b'{"event":"guessed"}', b'{"event":"killed","pid":7}'],
)
def test_a_broken_line_that_is_not_torn_is_an_error(tmp_path: Path, broken: bytes) -> None:
    Writer(tmp_path).write(*EVENTS)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    for spoilt in (broken + b"\n" + whole, whole + broken + b"\n"):
        file.write_bytes(spoilt)
        with pytest.raises(ValueError, match=rf"jsonl, line (1|{len(EVENTS) + 1}): "):
            read(tmp_path)


def test_two_processes_of_one_pid_cannot_write_one_history(tmp_path: Path) -> None:
    Writer(tmp_path)
    with pytest.raises(FileExistsError):
        Writer(tmp_path)


def test_what_was_written_before_a_kill_is_read_and_nothing_else(tmp_path: Path) -> None:
    """It says each number once that is written."""
    script = (
        "import sys; from pathlib import Path; from tests.kit.history import *\n"
        "writer, n = Writer(Path(sys.argv[1])), 0\n"
        "while True:\n"
        "    n += 1; writer.write(Killed(pid=n, at=0, until=0)); print(n, flush=True)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(200)]
        writer.kill()
        said += [int(line) for line in writer.stdout if line.endswith(b"\n")]
    read_back = [event.pid for event in read(tmp_path) if isinstance(event, Killed)]
    assert said == list(range(1, len(said) + 1))
    assert read_back[: len(said)] == said
    assert len(read_back) <= len(said) + 1

"""Tables for people: what tells tasks apart stays on a terminal, and long texts are cut."""

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from expirebridge import State, Task
from expirebridge.cli.output import print_shown, table_of_tasks

ID = "24a56739d7a44e5b9a9e2e220a2a8b4b"
FAILED = Task(
    id=ID, func="mail.send", args=["x" * 300], key=b"", state=State.FAILED,
    due=datetime(2026, 5, 1, tzinfo=UTC), attempt=3, error="Traceback:\nValueError: " + "ä" * 3000,
)  # fmt: skip


@pytest.mark.parametrize("width", [120, 160, 200])
def test_a_long_error_leaves_room_for_the_task_that_it_is_of(width: int) -> None:
    screen = io.StringIO()
    Console(file=screen, width=width, color_system=None).print(table_of_tasks([FAILED, FAILED]))
    head, *rows = screen.getvalue().splitlines()
    assert head.split()[:2] == ["id", "state"]
    assert len(rows) == 2
    for row in rows:
        assert row.startswith(f"{ID}  failed  2026-05-01T00:00:00.000Z")
        assert "mail.send" in row
        assert "…" in row


def test_a_pipe_gets_all_of_it_and_no_spaces_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    print_shown(table_of_tasks([FAILED, replace(FAILED, error=None)]))
    head, failed, other = capsys.readouterr().out.splitlines()
    assert failed.endswith("ä" * 3000)
    assert [line.rstrip() for line in (head, failed, other)] == [head, failed, other]

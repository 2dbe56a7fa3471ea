"""The demo ends by itself, judges each kind, and leaves nothing behind."""

import shutil
from pathlib import Path

import pytest

from expirebridge.embedded.resources import example_tasks
from tests.kit.processes import run


def processes_under(folder: Path) -> list[str]:
    """Command lines of processes that were started with files in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("spoilt", "more"),
    [
        (False, []),
        pytest.param(True, [], marks=pytest.mark.rest),
        pytest.param(False, ["--cluster", "3"], marks=pytest.mark.rest),
    ],
)
def test_the_demo_runs_each_kind_or_fails(tmp_path: Path, spoilt: bool, more: list[str]) -> None:
    # A copy of the example handlers, of which one is spoilt: the demo must notice.
    shutil.copytree(example_tasks(), tmp_path / "tasks", ignore=shutil.ignore_patterns("__pyc*"))
    if spoilt:
        module = tmp_path / "tasks" / "orders.py"
        module.write_text(module.read_text().replace("    note()\n", ""))
    # Servers and listener all have this folder in their command lines.
    result = run("demo", "--tasks", tmp_path / "tasks", *more, TMPDIR=str(tmp_path))
    lines = result.stdout.splitlines()
    assert sum(line.startswith("ok ") for line in lines) == (5 if spoilt else 6)
    assert result.returncode == (1 if spoilt else 0)
    assert ("FAULT at a time, plain handler: ran 0 times instead of 1" in lines) is spoilt
    assert processes_under(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["tasks"]

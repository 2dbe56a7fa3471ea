"""What type checkers find in a program that uses the library."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

USES = Path(__file__).with_name("static_calls.py")
IGNORE = re.compile(r"  # type: ignore\[[\w-]+\]$", re.MULTILINE)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The uses without what hides the wrong ones from type checkers."""
    copy = tmp_path / USES.name
    copy.write_text(IGNORE.sub("", USES.read_text()))
    return copy


def wrong_lines() -> set[int]:
    lines = USES.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if IGNORE.search(line)}


def report_of(checker: str, *options: str) -> str:
    command = [sys.executable, "-m", checker, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.rest
def test_mypy_finds_exactly_the_wrong_uses(program: Path) -> None:
    # With the cache of `make check`, if it is there.
    report = report_of("mypy", "--strict", str(program))
    found = {int(line) for line in re.findall(rf"{USES.name}:(\d+): error:", report)}
    assert found == wrong_lines(), report
    assert len(found) > 10


@pytest.mark.rest
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, for pyright")
def test_pyright_finds_exactly_the_wrong_uses(program: Path) -> None:
    output = report_of("pyright", "--outputjson", "--pythonpath", sys.executable, str(program))
    report: dict[str, Any] = json.loads(output)
    found = {one["range"]["start"]["line"] + 1 for one in report["generalDiagnostics"]}
    assert found == wrong_lines(), output

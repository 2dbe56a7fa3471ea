"""Each command is on the page docs/reference/command-line.md, and no other."""

import re
from pathlib import Path

from tests.kit.invoked import commands

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


def test_each_command_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    cells = re.findall(r"^- (`[^:]*`):\s", text, re.MULTILINE)
    listed = re.findall(r"`([a-z -]+)`", " ".join(cells))
    assert sorted(listed) == sorted({name for name, _ in commands()})

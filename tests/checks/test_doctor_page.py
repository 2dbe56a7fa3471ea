"""The page about the doctor explains each check, and each word that names one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import expirebridge
from tests.kit.processes import ROOT

PACKAGE = Path(expirebridge.__file__).parent
PAGE = (ROOT / "docs" / "reference" / "doctor.md").read_text()
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text()
LEVELS = {"ok", "warning", "error", "limit"}
OF_SERIES = {"all_tick"}
"""What gives the same finding about series here and there."""
OF_CHECK = {"server"}
"""What only `expirebridge check` says, of a server that does not answer."""


def checks() -> Iterator[str]:
    """The names of all findings."""
    paths = [*(PACKAGE / "checks").glob("*.py"), *PACKAGE.glob("*/*checks.py")]
    for path in [*paths, PACKAGE / "cli/doctor.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                if node.func.id in LEVELS | OF_SERIES and isinstance(first, ast.Constant):
                    yield str(first.value)


def test_each_check_has_its_row() -> None:
    rows = set(re.findall(r"^\| `([a-z -]+)` \|", PAGE, re.MULTILINE))
    names = set(checks())
    assert len(names) > 30
    assert names - rows == OF_CHECK


def test_the_words_that_findings_use_are_in_the_glossary() -> None:
    for word in ("doorbell", "lane", "slot", "series", "tick", "relay", "pass", "write-back",
                 "round trip", "fleet", "tag", "partition", "hold", "group"):  # fmt: skip
        assert re.search(rf"\| {word} \||\*{word}s?\*|, {word} \||\| {word},", GLOSSARY), word

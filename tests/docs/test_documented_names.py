"""Each dotted name of expirebridge in the documentation is one that a reader can import."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
NAME: Final = re.compile(r"`(expirebridge(?:\.\w+)+)[^`]*`")
OTHERS: Final = {
    "expirebridge.service": "a unit of systemd",
    "expirebridge.view_redistask": "a permission in Django",
    "expirebridge.change_redistask": "a permission in Django",
    "expirebridge.view_redisseries": "a permission in Django",
    "expirebridge.attempt": "an attribute of a span",
    "expirebridge.lateness": "an attribute of a span",
    "expirebridge.outcome": "an attribute of a span",
}
"""What looks like a name of Python, and is none."""


def names_in(text: str) -> Iterator[str]:
    yield from (match[1] for match in NAME.finditer(text) if match[1] not in OTHERS)


def resolves(name: str) -> bool:
    """Whether this is a module, or an attribute of one."""
    module, _, attributes = name, "", list[str]()
    while module:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not (error.name and module.startswith(error.name)):
                raise
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
            continue
        for attribute in attributes:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_name_of_a_page_is_there(page: Path) -> None:
    missing = [name for name in names_in(page.read_text("utf-8")) if not resolves(name)]
    assert missing == []


def test_a_name_that_is_missing_is_found() -> None:
    text = "Call `expirebridge.ledger.begin_immediately(engine)`, or `expirebridge.Bridge`."
    assert [name for name in names_in(text) if not resolves(name)] == [
        "expirebridge.ledger.begin_immediately"
    ]

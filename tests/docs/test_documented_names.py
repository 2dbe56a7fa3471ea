"""Each dotted name of expirebridge in the documentation is one that a reader can import."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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


def test_each_name_of_a_page_is_there() -> None:
    named = {(name, page) for page in PAGES for name in names_in(page.read_text("utf-8"))}
    missing = {name for name in {name for name, _ in named} if not resolves(name)}
    assert {(name, str(page)) for name, page in named if name in missing} == set()


def test_a_name_that_is_missing_is_found() -> None:
    text = "Call `expirebridge.ledger.begin_immediately(engine)`, or `expirebridge.Bridge`."
    assert [name for name in names_in(text) if not resolves(name)] == [
        "expirebridge.ledger.begin_immediately"
    ]

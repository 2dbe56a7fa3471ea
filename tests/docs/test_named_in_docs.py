"""What a page names by its dotted name is there."""

import importlib
import re
from pathlib import Path

import expirebridge
from tests.kit.processes import ROOT

PACKAGE = Path(expirebridge.__file__).parent
NAME = re.compile(r"\bexpirebridge(?:\.[A-Za-z_]\w*)+")
MODULES = {path.stem for path in PACKAGE.iterdir() if path.suffix != ".typed"}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def is_there(name: str) -> bool:
    """Whether a module, or what is in one, has this name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_what_a_page_names_is_there() -> None:
    named = {(name, page) for page in PAGES for name in NAME.findall(page.read_text())}
    # Without a module behind it, the name is that of the fixture, of a log's field or the like.
    modules = {name for name, _ in named if name.split(".")[1] in MODULES}
    missing = {name for name in modules if not is_there(name)}
    assert {(name, str(page)) for name, page in named if name in missing} == set()


def test_what_is_not_there_would_be_seen() -> None:
    assert is_there("expirebridge.ledger.Ledger.make_task")
    assert not is_there("expirebridge.ledger.engines.begin_immediate")

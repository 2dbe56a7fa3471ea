"""Links between pages, and pages that source files name: all of them exist, with their headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"

_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
_NAMED = re.compile(r"(?<![\w/])docs/[\w/-]+\.md(?:#[\w-]+)?|(?<![\w/])docs/adr/\d{4}\b")


def _pages() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder in ("benchmarks", "docs", "examples"):
        for page in (ROOT / folder).rglob("*.md"):
            if "node_modules" not in page.parts and not page.name.endswith(".template.md"):
                yield page


def _sources() -> Iterator[Path]:
    for folder in ("benchmarks", "expirebridge", "tasks", "tests"):
        for kind in ("*.py", "*.lua"):
            yield from (ROOT / folder).rglob(kind)
    yield from (ROOT / "Makefile", ROOT / "pyproject.toml")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repeated = (f"{anchor}-{count}" for count in range(1, len(found) + 1))
        found.add(next(one for one in (anchor, *repeated) if one not in found))
    return found


def _fault_of(target: Path, anchor: str) -> str | None:
    """Why there is no such place, or None if there is."""
    if not target.exists():
        return "no such file"
    if anchor and target.suffix == ".md" and anchor not in _anchors(target):
        return f"no heading {anchor}"
    return None


PAGES: Final = sorted(_pages())


def _wrong_links(page: Path) -> Iterator[str]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    for link in (one or other for one, other in _LINK.findall(text)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if fault := _fault_of(target, anchor):
            yield f"{_name(page)}: {link}: {fault}"


def test_the_links_of_a_page_lead_somewhere() -> None:
    assert [fault for page in PAGES for fault in _wrong_links(page)] == []


def test_every_picture_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in (DOCS / "images").iterdir() if path.name not in text] == []


def test_pages_that_source_files_name_exist() -> None:
    faults = []
    for source in _sources():
        for named in _NAMED.findall(source.read_text(encoding="utf-8")):
            path, _, anchor = named.partition("#")
            if source == Path(__file__):
                continue
            target = ROOT / path
            if not path.endswith(".md"):
                target = next(ROOT.glob(f"{path}-*.md"), target)
            if fault := _fault_of(target, anchor):
                faults.append(f"{_name(source)}: {named}: {fault}")
    assert faults == []


def test_the_index_names_every_page() -> None:
    index = DOCS / "README.md"
    links = [one for one, _ in _LINK.findall(index.read_text(encoding="utf-8")) if one]
    named = {_name((DOCS / link.partition("#")[0]).resolve()) for link in links}
    pages = {_name(page) for page in PAGES if page.is_relative_to(DOCS) and page != index}
    assert {page for page in pages if not page.startswith("docs/adr/")} <= named


def _cells(row: str) -> int:
    return re.sub(r"`[^`]*`|\\\|", "", row).count("|")


def _uneven_rows(text: str) -> Iterator[str]:
    """Rows of tables that have more or fewer cells than the head of the table."""
    lines = _CODE.sub(lambda code: "\n" * code[0].count("\n"), text).splitlines()
    cells = 0
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.lstrip().startswith("|"):
            cells = 0
        elif re.fullmatch(r"\s*\|[-:| ]*-[-:| ]*\|\s*", line):
            cells = _cells(before)
        if cells and _cells(line) != cells:
            yield line


def test_a_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    head = "| a | b |\n|---|---|\n"
    uneven_rows = [*_uneven_rows(head + "| `|` | 1 |\n| one cell |\n| 2 | 3\n")]
    assert uneven_rows == ["| one cell |", "| 2 | 3"]
    uneven = {_name(page): [*_uneven_rows(page.read_text(encoding="utf-8"))] for page in PAGES}
    assert {page: rows for page, rows in uneven.items() if rows} == {}

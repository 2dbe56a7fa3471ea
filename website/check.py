"""Checks what Zensical does not: pictures, files that are no pages, and markup that is left."""

import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_ADDRESSES: Final = ("href", "src", "srcset")
_ELSEWHERE = re.compile(r"[a-z]+:|//", re.IGNORECASE)
_MARKUP = re.compile(r"\]\(|\]\[|\*\*|```")
"""In the text of a page: a reference without a target, or what was not read as Markdown."""
_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_BADLY_INDENTED = re.compile(r"(?<=\n\n) {1,3}\S.*|^ {1,3}```.*", re.MULTILINE)
_NO_TEXT: Final = frozenset({"code", "pre", "script", "style"})


class _Page(HTMLParser):
    """The anchors of a page, what it links to, and markup in its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.markup: list[str] = []
        self._depth = 0  # within elements whose text is shown as it is
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._depth += tag in _NO_TEXT
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in _ADDRESSES and value and not _ELSEWHERE.match(value):
                self.links.add(value)

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag in _NO_TEXT

    def handle_data(self, data: str) -> None:
        if not self._depth and _MARKUP.search(data):
            self.markup.append(" ".join(data.split()))


def badly_indented(pages: Iterable[Path]) -> list[str]:
    """Return the paragraphs in lists that the site would not show within the list.

    The repository's readers take them with fewer than four spaces.
    """
    return [
        f"{page.name}: indent this by four spaces: {line.strip()}"
        for page in pages
        for line in _BADLY_INDENTED.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))
    ]


def faults(site: Path) -> list[str]:
    """Return what is wrong with the pages of a site, one line for each fault."""
    pages = {file: _Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        found += [f"{file.relative_to(site)}: not read as Markdown: {one}" for one in page.markup]
        for link in sorted(page.links):
            path, _, anchor = link.partition("#")
            # The page that a server shows in place of any other has links from the root.
            start = site if path.startswith("/") else file.parent
            target = (start / unquote(path).lstrip("/")).resolve() if path else file
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{file.relative_to(site)}: {link} leads nowhere")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                found.append(f"{file.relative_to(site)}: {link}: there is no such anchor")
    return found

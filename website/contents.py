"""The order of the pages: that of docs/README.md, which is the only list of them."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from website import api

INDEX: Final = "docs/README.md"

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)\)")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LIST = re.compile(r"(?:^\*\*(.+)\*\*\n\n)?((?:^(?:- |  ).*\n)+)", re.MULTILINE)

Entry = str | Mapping[str, Any]
"""A page by its place, which has its own title; or a title, and a place or the entries below it."""


def navigation(pages: Path) -> list[Entry]:
    """Return the navigation of the pages in a folder.

    A list of docs/README.md below a title in bold is a section within its section.
    """

    def matching(pattern: str) -> list[str]:
        return sorted(file.relative_to(pages).as_posix() for file in pages.glob(pattern))

    below: dict[str, Entry] = {
        "docs/reference/python-api.md": {"Docstrings": [*api.MODULES.values()]},
        "docs/adr/README.md": {"Records": matching("docs/adr/0*.md")},
    }
    sections: list[Entry] = []
    for heading, body in _SECTION.findall((pages / INDEX).read_text(encoding="utf-8")):
        if entries := [*_of_lists(body, below)]:
            sections.append({heading: entries})
    top = matching("[A-Z]*.md")
    return [
        {"expirebridge": "README.md"},
        {"All pages": INDEX},
        *sections,
        {"Project": [page for page in top if page not in {"README.md", "README.zh.md"}]},
        {"中文": ["README.zh.md", *matching("docs/zh/**/*.md")]},
    ]


def places(navigation: list[Entry]) -> list[str]:
    """Return the places of the pages, in order."""
    found = list[str]()
    for entry in navigation:
        if isinstance(entry, str):
            found.append(entry)
            continue
        for inner in entry.values():
            found += places([inner] if isinstance(inner, str) else inner)
    return found


def for_programs(text: str) -> str:
    """Return docs/README.md as llms.txt: named after the project, with links from the top."""
    text = re.sub(r"^# .*", "# expirebridge", text)
    return re.sub(r"\]\((?!\w+:)([^)]+)\)", lambda link: f"]({_place(link[1])})", text)


def _of_lists(body: str, below: Mapping[str, Entry]) -> Iterator[Entry]:
    for title, items in _LIST.findall(body):
        entries: list[Entry] = []
        for item in items.splitlines():
            for text, link in _LINK.findall(item.partition(": ")[0]):
                place = _place(link)
                entries.append({_capital(text): place})
                if place in below:
                    entries.append(below[place])
        if title:
            yield {title: entries}
        else:
            yield from entries


def _place(link: str) -> str:
    """Where a link of docs/README.md leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(INDEX), link))


def _capital(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].upper() + text[1:]

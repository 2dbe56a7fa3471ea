"""The order of the pages: that of docs/README.md, which is the only list of them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from website.pages import CHINESE, titled, without_markup

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)\)")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_PYTHON_API: Final = "reference/python-api.md"
_DECISIONS: Final = "adr/index.md"


@dataclass(frozen=True)
class Entry:
    """A page in the navigation: its title there, and its place on the site."""

    title: str
    place: str


@dataclass(frozen=True)
class Section:
    """A section of the navigation."""

    title: str
    inner: "tuple[Entry | Section, ...]"

    def entries(self) -> Iterator[Entry]:
        """The pages of the section and of those in it, in order."""
        for one in self.inner:
            if isinstance(one, Section):
                yield from one.entries()
            else:
                yield one


Navigation = tuple[Entry | Section, ...]


def in_english(pages: Mapping[str, str], api: Mapping[str, str]) -> Navigation:
    """Return the navigation of the site in English.

    `pages` are those of the repository by their place, `api` those of the API reference. A table of
    docs/README.md whose first column has a title is a section within its section.
    """
    records = {place: text for place, text in sorted(pages.items()) if place.startswith("adr/0")}
    added = {
        _PYTHON_API: Section("Docstrings", tuple(_titled(api))),
        _DECISIONS: Section("Records", tuple(_titled(records))),
    }
    project = {place: text for place, text in sorted(pages.items()) if _is_of_the_project(place)}
    sections = [
        Section(heading, inner)
        for heading, body in _SECTION.findall(pages["pages.md"])
        if (inner := tuple(_with(added, _tables(body))))
    ]
    return (
        Entry("expirebridge", "index.md"),
        Entry("All pages", "pages.md"),
        *sections,
        Section("Project", tuple(_titled(project))),
    )


def in_chinese(pages: Mapping[str, str], english: Navigation) -> Navigation:
    """Return the navigation in Chinese: the pages that are translated, in the same order."""
    places = [CHINESE + entry.place for entry in Section("", english).entries()]
    return tuple(_titled({place: pages[place] for place in places if place in pages}))


def _is_of_the_project(place: str) -> bool:
    """If this is a page like CONTRIBUTING.md, beside README.md."""
    return "/" not in place and place not in {"index.md", "pages.md"}


def _tables(body: str) -> "Iterator[Entry | Section]":
    for table in _TABLE.findall(body):
        header, _, *rows = (line.split("|")[1] for line in table.splitlines())
        entries = [
            Entry(_capital(text), place) for cell in rows for text, place in _LINK.findall(cell)
        ]
        if header.strip():
            yield Section(_capital(header.strip()), tuple(entries))
        else:
            yield from entries


def _with(
    added: "Mapping[str, Section]", inner: "Iterator[Entry | Section]"
) -> "Iterator[Entry | Section]":
    for one in inner:
        yield one
        if isinstance(one, Entry) and one.place in added:
            yield added[one.place]


def _titled(pages: Mapping[str, str]) -> Iterator[Entry]:
    return (Entry(titled(text), place) for place, text in pages.items())


def _capital(text: str) -> str:
    text = without_markup(text)
    return text[:1].upper() + text[1:]

"""What each page is about, in a sentence: for programs that read, and for search engines."""

import re
from collections.abc import Mapping
from typing import Final

from website.pages import without_markup

_ROW = re.compile(r"^\| (\[.*?) \| (.+) \|$", re.MULTILINE)
_PLACE = re.compile(r"\]\(([^)#\s]+)\)")
_TITLE = re.compile(r"^# .+$", re.MULTILINE)
_ASIDE = re.compile(r"Status: |(The )?[Tt]ests (run|follow) |\[[^\]]*\]\([^)]*\)$")
"""Begins a paragraph that is no text about the subject of a page."""
_NO_PARAGRAPH = re.compile(r" {4}|```|[#|<!{]|- |\d+\. ")
_LIST_OF_PAGES: Final = "pages.md"


def of_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """Return what each page says first, or else what docs/README.md says of it, by its place.

    A page without either, such as a decision, is described by its title alone.
    """
    told = {
        place: f"{said[:1].upper()}{said[1:]}."
        for links, row in _ROW.findall(pages[_LIST_OF_PAGES])
        for place in _PLACE.findall(links)
        if (said := without_markup(row))
    }
    return {place: first_sentence(text) or told.get(place, "") for place, text in pages.items()}


def first_sentence(text: str) -> str:
    """Return the first sentence below the title as plain text, or nothing.

    There is none if something else than a paragraph comes first, or a list ends the sentence.
    """
    for paragraph in re.split(r"\n\s*?\n", _TITLE.split(text, maxsplit=1)[-1].strip("\n")):
        if _ASIDE.match(paragraph):
            continue
        if _NO_PARAGRAPH.match(paragraph):
            return ""
        words = " ".join(without_markup(paragraph).split())
        return found[0] if (found := re.match(r".*?(?:\.(?=\s|$)|。)", words)) else ""
    return ""

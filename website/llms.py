"""llms.txt, the list of the pages for programs that read, and llms-full.txt, all of them."""

import re
from collections.abc import Mapping

from website.contents import Navigation, Section
from website.pages import titled, without_markup

_NO_TEXT = re.compile(r"[#|<`!{-]|\d+\. |Status: |(The )?[Tt]ests run ")
"""Begins what is no text about the subject of a page."""


def listed(pages: Mapping[str, str], navigation: Navigation) -> str:
    """Return llms.txt: for each page a link to its Markdown, and its first sentence."""
    home = pages["index.md"]
    lines = [f"# {titled(home)}", "", f"> {first_sentence(home)}", ""]
    for one in navigation:
        if isinstance(one, Section):
            lines += ["", f"## {one.title}", ""]
        for entry in one.entries() if isinstance(one, Section) else [one]:
            text = pages[entry.place]
            lines.append(f"- [{titled(text)}]({entry.place}): {first_sentence(text)}".rstrip(": "))
    return "\n".join(lines) + "\n"


def in_full(pages: Mapping[str, str], navigation: Navigation) -> str:
    """Return llms-full.txt: the Markdown of every page in the navigation, after its place."""
    entries = Section("", navigation).entries()
    return "\n".join(f"<!-- {entry.place} -->\n\n{pages[entry.place]}" for entry in entries)


def first_sentence(text: str) -> str:
    """Return the first sentence of a page as plain text, or nothing if it has no paragraph."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if paragraph.strip() and not _NO_TEXT.match(paragraph):
            return re.split(r"(?<=\.)\s", " ".join(without_markup(paragraph).split()))[0]
    return ""

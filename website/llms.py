"""llms.txt, the list of the pages for programs that read, and llms-full.txt, all of them."""

from collections.abc import Mapping

from website import descriptions
from website.contents import Navigation, Section
from website.pages import titled


def listed(pages: Mapping[str, str], navigation: Navigation) -> str:
    """Return llms.txt: for each page a link to its Markdown, and what it is about."""
    about = descriptions.of_pages(pages)
    lines = [f"# {titled(pages['index.md'])}", "", f"> {about['index.md']}", ""]
    for one in navigation:
        if isinstance(one, Section):
            lines += ["", f"## {one.title}", ""]
        for entry in one.entries() if isinstance(one, Section) else [one]:
            link = f"- [{titled(pages[entry.place])}]({entry.place})"
            lines.append(f"{link}: {about[entry.place]}".rstrip(": "))
    return "\n".join(lines) + "\n"


def in_full(pages: Mapping[str, str], navigation: Navigation) -> str:
    """Return llms-full.txt: the Markdown of every page in the navigation, after its place."""
    entries = Section("", navigation).entries()
    return "\n".join(f"<!-- {entry.place} -->\n\n{pages[entry.place]}" for entry in entries)

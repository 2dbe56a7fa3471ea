"""The pages of the site: files of the repository, with links that lead to other pages of the site.

Every page that README.md or docs/README.md leads to is on the site. A link to a file that is no
page, such as an example, leads to a page that shows this file.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
STARTS: Final = ("README.md", "docs/README.md", "README.zh.md")
FILES: Final = ("docs/", "benchmarks/pages/")
"""Begin the paths of what is on the site as it is, such as a picture, if it is no page."""
CHINESE: Final = "zh/"
"""Begins the paths of the pages in Chinese, which are a site of their own within the site."""

_CODE = re.compile(r"(````.*?````|```.*?```|`[^`\n]*`)", re.DOTALL)
_LINK = re.compile(r'(?<=\]\()[^)\s]+(?=\))|(?<=src=")[^"]+|(?<=srcset=")[^"]+')
_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_BADLY_INDENTED = re.compile(r"(?<=\n\n) {1,3}\S.*|^ {1,3}```.*", re.MULTILINE)
_PLACES = {"README.md": "index.md", "docs/README.md": "pages.md", "README.zh.md": "zh/index.md"}
_LANGUAGES = {
    ".js": "javascript", ".php": "php", ".py": "python", ".sh": "bash", ".toml": "toml",
    ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip


class PageError(Exception):
    """A page of the repository cannot be on the site as it is."""


def place_of(path: str) -> str:
    """Return where a file of the repository is on the site; both are relative paths."""
    if path in _PLACES:
        return _PLACES[path]
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif not path.endswith(".md") and not path.startswith(FILES):
        return f"source/{path}.md"
    elif "/" not in path:
        path = path.lower()
    return re.sub(r"(^|/)README\.md$", r"\1index.md", path)


def collect(root: Path = ROOT) -> dict[str, str]:
    """Return the Markdown of each page by its place on the site.

    Raises PageError for a link that leads nowhere, and for paragraphs of a list that are not
    indented by four spaces: the site would not show them within the list.
    """
    found: dict[str, str] = {}
    waiting = list(STARTS)
    while waiting:
        path = waiting.pop()
        place = place_of(path)
        if place in found:
            continue
        if place.startswith("source/"):
            found[place] = _shown(root, path)
            continue
        text = (root / path).read_text(encoding="utf-8")
        found[place], targets = _moved(root, path, text)
        waiting += targets
    return found


def titled(text: str) -> str:
    """Return the title of a page. Raises PageError if it has none."""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if title is None:
        raise PageError(f"a page has no title: {text[:80]!r}")
    return without_markup(title[1])


def without_markup(text: str) -> str:
    """Return a line of Markdown without links, code spans and emphasis."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"(\*+)(\S[^*]*?)\1", r"\2", part) for part in parts[::2]]
    return "".join(parts).replace("`", "").replace("**", "")


def link_between(place: str, target: str) -> str:
    """Return the link from one page of the site to another.

    Between the languages it is one to the finished page, since each is built alone.
    """
    link = os.path.relpath(target, os.path.dirname(place))  # noqa: PTH120 - neither is a file
    if place.startswith(CHINESE) == target.startswith(CHINESE):
        return link
    return re.sub(r"\.md$", ".html", link)


def _moved(root: Path, path: str, text: str) -> tuple[str, list[str]]:
    """The text of a page as it is on the site, and the files that it links to, but for pictures."""
    place = place_of(path)
    targets = []
    if line := _BADLY_INDENTED.search(_BLOCK.sub("", text)):
        raise PageError(f"{path}: indent this by four spaces: {line[0].strip()}")

    def replace(link: re.Match[str]) -> str:
        if re.match(r"\w+:|#", link[0]):
            return link[0]
        to, hash_, anchor = link[0].partition("#")
        target = os.path.normpath(Path(path).parent / to)
        if not (root / target).exists() or target.startswith(".."):
            raise PageError(f"{path}: {link[0]} leads nowhere")
        if (root / target / "README.md").is_file():
            target += "/README.md"
        if target.endswith(".md") or not target.startswith(FILES):
            targets.append(target)
        return link_between(place, place_of(target)) + hash_ + anchor

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts), targets


def _shown(root: Path, path: str) -> str:
    """The page that shows a file, or all files of a folder."""
    blocks = [f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n"]
    for file in _files(root / path):
        name = file.relative_to(root).as_posix()
        heading = "" if name == path else f"## {name}\n\n"
        text = file.read_text(encoding="utf-8").rstrip("\n") + "\n"
        blocks.append(f"{heading}````{_LANGUAGES.get(file.suffix, 'text')}\n{text}````\n")
    return "\n".join(blocks)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from sorted(
            file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )

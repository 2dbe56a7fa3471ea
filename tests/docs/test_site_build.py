"""`make docs`: it builds the site, and fails for each kind of fault in a page."""

import html
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.kit.site import WITH_ZENSICAL, build, copy_sources
from website import ROOT, api, contents

pytestmark = WITH_ZENSICAL


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    copy_sources(tmp_path)
    return tmp_path


def text_of(elements: str) -> str:
    """The text of some HTML, without spaces and the signs at headings that lead to them."""
    return re.sub(r"[\s¶]", "", html.unescape(re.sub(r"<[^>]*>", "", elements)))


def test_the_site_is_built(copy: Path) -> None:
    code, printed = build(copy)
    assert code == 0, printed
    site = copy / "build" / "site"
    for page in "index", "404", "docs/tutorial/first-task", "docs/reference/api/expirebridge":
        assert (site / f"{page}.html").is_file()
    for file in "llms.txt", "search.json", "docs/tutorial/first-task.md", "examples/make_task.sh":
        assert (site / file).is_file()
    heads = {page: (site / f"{page}.html").read_text("utf-8") for page in ("index", "README.zh")}
    assert '<div lang="zh">' in heads["README.zh"]
    for page, said in (("index", "expirebridge runs tasks "), ("README.zh", "expirebridge 让任务")):
        assert f'<meta name="description" content="{said}' in heads[page]
        assert "<title>expirebridge</title>" in heads[page]
        assert 'rel="alternate"' not in heads[page]
    assert not [*site.rglob("sitemap.xml")]
    examples = (site / "examples" / "index.html").read_text(encoding="utf-8")
    assert '<meta name="description" content="Each of these files makes two tasks' in examples
    assert "mail.send(42, &quot;hi&quot;), finds the server by EXPIREBRIDGE_URL" in examples
    # The site reads Markdown by other rules than the repository's readers: both show the same text.
    markdown = MarkdownIt("commonmark").enable("table")
    full = (site / "llms-full.txt").read_text("utf-8")
    for place in contents.places(contents.navigation(copy)):
        text = (site / place).read_text(encoding="utf-8")
        assert f"<!-- {place} -->\n\n{text}" in full
        if place in api.MODULES.values():
            continue
        assert text == (ROOT / place).read_text(encoding="utf-8")
        shown = (site / re.sub(r"README\.md$", "index.md", place)).with_suffix(".html")
        assert text_of(markdown.render(text)) in text_of(shown.read_text(encoding="utf-8")), place


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ("[a](nowhere.md)", "page does not exist"),
        ("[a](deploy.md#nowhere)", "anchor does not exist"),
        ("[a](nowhere.py)", "nowhere.py leads nowhere"),
        ("![a](../images/nowhere.png)", "nowhere.png leads nowhere"),
        ("[a][nowhere]", "not read as Markdown: [a][nowhere]"),
    ],
)
def test_a_fault_in_a_page_is_reported(copy: Path, fault: str, reported: str) -> None:
    page = copy / "docs" / "how-to" / "monitor.md"
    page.write_text(page.read_text(encoding="utf-8") + f"\n{fault}\n", encoding="utf-8")
    code, printed = build(copy)
    assert code == 1
    assert reported in printed
    assert "monitor" in printed

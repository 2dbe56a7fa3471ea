"""`make docs`: it builds the site, and fails for each kind of fault in a page."""

import html
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.kit.site import WITH_ZENSICAL, build, copy_sources
from website.pages import collect

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
    for page in "index", "404", "tutorial/first-task", "reference/api/expirebridge", "zh/index":
        assert (site / f"{page}.html").is_file()
    for file in (
        "llms.txt",
        "llms-full.txt",
        "search.json",
        "zh/search.json",
        "tutorial/first-task.md",
    ):
        assert (site / file).is_file()
    heads = {
        page: (site / f"{page}.html").read_text(encoding="utf-8") for page in ("index", "zh/index")
    }
    assert '<html lang="zh"' in heads["zh/index"]
    for page, said in (("index", "expirebridge runs tasks "), ("zh/index", "expirebridge 让任务")):
        assert f'<meta name="description" content="{said}' in heads[page]
        assert "<title>expirebridge</title>" in heads[page]
        assert 'rel="alternate"' not in heads[page]
    assert not [*site.rglob("sitemap.xml")]
    examples = (site / "examples" / "index.html").read_text(encoding="utf-8")
    assert '<meta name="description" content="Each of these files makes two tasks' in examples
    assert "mail.send(42, &quot;hi&quot;), finds the server by EXPIREBRIDGE_URL" in examples
    # The site reads Markdown by other rules than the repository's readers: both show the same text.
    markdown = MarkdownIt("commonmark").enable("table")
    for place, text in collect(copy).items():
        if not place.startswith("source/"):
            shown = (site / place).with_suffix(".html").read_text(encoding="utf-8")
            assert text_of(markdown.render(text)) in text_of(shown), place


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ("[a](nowhere.md)", "nowhere.md leads nowhere"),
        ("[a](deploy.md#nowhere)", "anchor does not exist"),
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

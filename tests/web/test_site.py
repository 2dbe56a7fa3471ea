"""The documentation site in a browser: search, narrow screens, dark and light, no such page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.staticfiles import StaticFiles

from tests.kit.site import WITH_ZENSICAL, build, copy_sources
from tests.web.serving import IN_CHROMIUM, served

pytestmark = [*IN_CHROMIUM, *WITH_ZENSICAL]

WIDE = ("index.html", "benchmarks/pages/performance.html", "docs/reference/api/expirebridge.html")
"""Pages with wide tables and long lines of code."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("site")
    copy_sources(folder)
    code, printed = build(folder)
    assert code == 0, printed
    with served(StaticFiles(directory=folder / "build" / "site", html=True)) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that, in the end, has asked no other server for anything."""
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    page.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize(
    ("start", "query", "found"),
    [
        ("index.html", "put off", "put_off"),
        ("README.zh.html", "推迟", "推迟任务"),
        ("README.zh.html", "回滚", "每个订单一个任务"),
    ],
)
def test_search_finds_words(page: Page, address: str, start: str, query: str, found: str) -> None:
    page.goto(f"{address}/{start}")
    page.locator(".md-search__button:visible").click()
    page.get_by_role("combobox").fill(query)
    expect(page.get_by_role("option", name=found).first).to_be_visible()


@pytest.mark.parametrize("path", WIDE)
def test_a_narrow_page_does_not_scroll_sideways(page: Page, address: str, path: str) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    page.goto(f"{address}/{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


@pytest.mark.parametrize(("system", "scheme"), [("dark", "slate"), ("light", "default")])
def test_the_colours_are_those_of_the_system(
    page: Page, address: str, system: Literal["dark", "light"], scheme: str
) -> None:
    page.emulate_media(color_scheme=system)
    page.goto(address)
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", scheme)


def test_an_address_without_a_page_leads_on(page: Page, address: str) -> None:
    response = page.goto(f"{address}/docs/how-to/no-such-page.html")
    assert response is not None
    assert response.status == 404
    page.get_by_role("link", name="How to troubleshoot").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("How to find out what is wrong")

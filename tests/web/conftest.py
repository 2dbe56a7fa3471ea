"""The dashboard: asked without a browser, byte for byte, and looked at in one."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from sqlalchemy import Engine, create_engine

from expirebridge import web
from expirebridge.ledger.binding import place_of
from expirebridge.ledger.schema import create
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.ledgers import LedgerHarness
from tests.web.serving import CHROMIUM, OPTIONS, OWN, PATIENCE_MS, Asking, Open, served

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def asking(url: str) -> Asking:
    """Opens a client of a dashboard that is made with these options."""

    @contextlib.asynccontextmanager
    async def opened(**options: object) -> AsyncIterator[httpx.AsyncClient]:
        app = web.app(url, **options)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=OWN) as client,
        ):
            yield client

    return opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def dashboard(url: str) -> Iterator[str]:
    with served(web.app(url, actions=True, loopback_only=True)) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, dashboard: str) -> Iterator[Open]:
    """Opens pages; in the end, none of them has complained, or run what was slipped in."""
    complaints: list[str] = []
    pages: list[Page] = []

    def complain(text: str) -> None:
        complaints.append(text)

    def opened(
        path: str = "/",
        *,
        width: int = 1600,
        theme: str = "light",
        at: str = "",
        zone: str = "UTC",
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            timezone_id=zone,
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: complain(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complain(str(error)))
        page.on("dialog", lambda dialog: complain(f"a dialog: {dialog.message}"))
        page.goto((at or dashboard) + path, wait_until="domcontentloaded")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        assert page.evaluate("window.hacked") is None
        page.context.close()
    assert complaints == []


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def engine(ledger: str) -> Iterator[Engine]:
    engine = create_engine(ledger)
    with engine.begin() as connection:
        create(connection, own_tables())
    yield engine
    engine.dispose()


@pytest.fixture
def harness(engine: Engine, store: Store, url: str, ledger: str) -> LedgerHarness:
    place = place_of(Settings(url=url, ledger=ledger), engine.url)
    return LedgerHarness(engine, own_tables(), store, place=place)

"""The dashboard, asked without a browser: what it answers, byte for byte."""

import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from expirebridge import web
from tests.browser.serving import OWN, Asking


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

"""Prints which tasks the pages of a version's dashboard name, by state."""

import asyncio
import json
import re

import httpx

from expirebridge import web
from expirebridge.settings import Settings

OWN = "http://127.0.0.1:8321"


async def named() -> dict[str, list[str]]:
    app = web.app(Settings.read().url)
    found = {}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=OWN) as client,
    ):
        for state in ("pending", "paused", "succeeded", "failed", "cancelled"):
            page = (await client.get(f"/tasks?state={state}")).raise_for_status()
            found[state] = sorted(set(re.findall(r"\b(?:waits|ended)-\d\b", page.text)))
        for path in ("/", "/actions", "/task?id=ended-1"):
            (await client.get(path)).raise_for_status()
    return found


print(json.dumps(asyncio.run(named())))

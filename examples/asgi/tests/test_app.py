"""A user who signs up is welcomed. No listener runs: `travel` runs what is due, in the test."""

import pytest
from background import lifespan
from fastapi.testclient import TestClient
from fastapi_app import app
from httpx2 import ASGITransport, AsyncClient

from expirebridge.testing import Clock


@pytest.fixture(autouse=True)
def _no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN", "no")


def test_a_new_user_is_welcomed(expirebridge: Clock) -> None:
    with TestClient(app) as client:
        client.post("/users/ann")
    expirebridge.assert_made("letters.welcome", args=["ann"], due_in="2s")
    [ran] = expirebridge.travel("1d")
    assert (ran.task.args, ran.end) == (["ann"], "succeeded")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_same_in_the_loop_of_the_test(expirebridge: Clock) -> None:
    transport = ASGITransport(app)
    async with lifespan(app), AsyncClient(transport=transport, base_url="http://app") as client:
        await client.post("/users/bob")
        [ran] = await expirebridge.atravel("1d")
    assert ran.task.args == ["bob"]

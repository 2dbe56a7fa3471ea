"""The application for Litestar."""

from typing import Any

from background import lifespan
from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath

from expirebridge import AsyncBridge, ServerError


async def producer(state: State) -> AsyncBridge:
    """The bridge that the lifespan opened."""
    bridge: AsyncBridge = state.bridge
    return bridge


Producer = NamedDependency[AsyncBridge]


@post("/users/{user:str}", status_code=202)
async def sign_up(user: FromPath[str], bridge: Producer) -> dict[str, str]:
    """Make a task that welcomes the user."""
    task = await bridge.make_task("letters.welcome", [user], "2s")
    return {"task": task.id}


@get("/health")
async def health(bridge: Producer) -> dict[str, int]:
    """Say how many listeners there are, and how many tasks are overdue."""
    counts = await bridge.count()
    return {"listeners": counts.listeners, "overdue": counts.overdue}


def unavailable(_request: Request[Any, Any, Any], _error: ServerError) -> Response[dict[str, str]]:
    """Answer 503 while the server of tasks does not answer."""
    return Response({"error": "the server of tasks does not answer"}, status_code=503)


app = Litestar(
    [sign_up, health],
    dependencies={"bridge": Provide(producer)},
    exception_handlers={ServerError: unavailable},
    lifespan=[lifespan],
    logging_config=None,  # that of `background` shows the lines of the listener and of handlers
)

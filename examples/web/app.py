"""A web application with a listener inside: one process serves requests and runs due tasks.

Start it from this folder: `uvicorn app:app`. FastAPI takes the same `lifespan`.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from outbox import sent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from expirebridge import AsyncBridge, Listener, ListenerStuck, Settings, log_event

logging.basicConfig(level=logging.INFO)  # the application's own: the listener configures nothing
logger = logging.getLogger("app")

bridge = AsyncBridge()
settings = Settings.read(tasks=Path(__file__).parent / "tasks")


async def end_with(listener: Listener) -> None:
    """Stop the server, in order, if the listener gave up: a supervisor starts both again."""
    try:
        await listener.wait()
    except ListenerStuck:
        logger.exception("stopping with the listener")
        os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Run a listener from the application's start to its end."""
    async with bridge, Listener(settings, hooks=[log_event]) as listener:
        watch = asyncio.create_task(end_with(listener))
        yield
        watch.cancel()


async def remind(request: Request) -> JSONResponse:
    """Make a task: POST /remind/ann?after=1m."""
    user, after = request.path_params["user"], request.query_params.get("after", "1s")
    task = await bridge.make_task("reminders.send", [user], after)
    return JSONResponse({"task": task.id, "due": task.due.isoformat()}, status_code=202)


async def show_sent(_: Request) -> JSONResponse:
    """Whom the handler has reminded."""
    return JSONResponse(sent)


app = Starlette(
    routes=[
        Route("/remind/{user}", remind, methods=["POST"]),
        Route("/sent", show_sent),
    ],
    lifespan=lifespan,
)

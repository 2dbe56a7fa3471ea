"""The application for Starlette."""

from background import lifespan
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from expirebridge import AsyncBridge, ServerError


async def sign_up(request: Request) -> JSONResponse:
    """Make a task that welcomes the user."""
    bridge: AsyncBridge = request.app.state.bridge
    task = await bridge.make_task("letters.welcome", [request.path_params["user"]], "2s")
    return JSONResponse({"task": task.id}, status_code=202)


async def health(request: Request) -> JSONResponse:
    """Say how many listeners there are, and how many tasks are overdue."""
    bridge: AsyncBridge = request.app.state.bridge
    counts = await bridge.count()
    return JSONResponse({"listeners": counts.listeners, "overdue": counts.overdue})


async def unavailable(_request: Request, _error: Exception) -> JSONResponse:
    """Answer 503 while the server of tasks does not answer."""
    return JSONResponse({"error": "the server of tasks does not answer"}, status_code=503)


app = Starlette(
    routes=[
        Route("/users/{user}", sign_up, methods=["POST"]),
        Route("/health", health),
    ],
    exception_handlers={ServerError: unavailable},
    lifespan=lifespan,
)

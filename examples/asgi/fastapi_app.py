"""The application for FastAPI."""

from typing import Annotated

from background import lifespan
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from expirebridge import AsyncBridge, ServerError


def producer(request: Request) -> AsyncBridge:
    """The bridge that the lifespan opened."""
    bridge: AsyncBridge = request.app.state.bridge
    return bridge


Producer = Annotated[AsyncBridge, Depends(producer)]

app = FastAPI(lifespan=lifespan)


@app.exception_handler(ServerError)
async def unavailable(_request: Request, _error: Exception) -> JSONResponse:
    """Answer 503 while the server of tasks does not answer."""
    return JSONResponse({"error": "the server of tasks does not answer"}, 503)


@app.post("/users/{user}", status_code=202)
async def sign_up(user: str, bridge: Producer) -> dict[str, str]:
    """Make a task that welcomes the user."""
    task = await bridge.make_task("letters.welcome", [user], "2s")
    return {"task": task.id}


@app.get("/health")
async def health(bridge: Producer) -> dict[str, int]:
    """Say how many listeners there are, and how many tasks are overdue."""
    counts = await bridge.count()
    return {"listeners": counts.listeners, "overdue": counts.overdue}

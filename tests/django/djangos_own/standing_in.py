"""Backends of ours that stand in for those with which Django's tests are written."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from expirebridge import State
from expirebridge.bridge import default_bridge
from expirebridge.contrib.django.backend import ExpirebridgeBackend
from expirebridge.testing import Clock

CLOCK = Clock()
"""Entered by the program that runs the tests."""


def _waiting() -> list[str]:
    return [task.id for task in default_bridge().list(state=State.PENDING).tasks]


class DummyBackend(ExpirebridgeBackend):
    """Runs nothing, and shows what was enqueued: it is read back from the server."""

    @property
    def results(self) -> list[Any]:
        """The results of all Tasks that wait."""
        return [
            self.get_result(task.id) for task in default_bridge().list(state=State.PENDING).tasks
        ]

    def clear(self) -> None:
        """Let none wait."""
        default_bridge().cancel_all(
            [task.id for task in default_bridge().list(state=State.PENDING).tasks]
        )


class ImmediateBackend(ExpirebridgeBackend):
    """Runs a Task while it is enqueued, as a listener would."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue it, run what is due, and read its result."""
        result = super().enqueue(task, args, kwargs)
        # In a thread of its own, as in a listener: this one may serve an event loop that waits.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(CLOCK.travel, 0).result()
        result.refresh()
        return result

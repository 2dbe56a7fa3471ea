"""What goes on beside a fault test, in a thread of its own, until the test has seen enough."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """Runs `_run` in a thread from the beginning of its `with` block until the block's end.

    `_run` returns soon after `_stop` is set. What it raises is raised where the block ends.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run_to_end, name=type(self).__name__.lower())

    @abstractmethod
    def _run(self) -> None:
        """What the thread does."""

    def stop(self) -> None:
        """Ask it to end; when this returns, it has."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run_to_end(self) -> None:
        try:
            self._run()
        except Exception as error:  # the thread that waits for this one raises it
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

"""Python's own clock, moved together with the server's."""

from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from expirebridge.errors import InvalidSetting

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PythonClock:
    """What `datetime.now()` and `time.time()` say until its `with` block ends.

    Time goes on in between. Raises InvalidSetting if time-machine is not installed.
    """

    def __init__(self) -> None:
        try:
            import time_machine  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InvalidSetting(
                "python_clock: time-machine is not installed: pip install 'expirebridge[testing]'"
            ) from error
        self._travel = time_machine.travel(datetime.now(UTC), tick=True)
        self._coordinates = self._travel.start()

    def move(self, now_us: int) -> None:
        """Show this time, in microseconds since 1970."""
        self._coordinates.move_to(_EPOCH + timedelta(microseconds=now_us))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._travel.stop()

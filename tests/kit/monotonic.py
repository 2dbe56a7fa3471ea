"""A monotonic clock that a test moves."""


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds, as the test has set them."""
        return self.now

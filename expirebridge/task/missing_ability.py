"""What the listeners lack that left a task to others, by the reason in its record."""

from enum import StrEnum

NOT_OPENED = "its arguments: "
"""How the reason begins if they are sealed, and the listener did not open them."""
SIGNAL_NOT_OPENED = "its signal: "
"""The same of what the signal said that decided the task."""
NOT_DECODED = "its arguments are encoded, "
"""How it begins if a codec made them, and the listener has none."""


class MissingAbility(StrEnum):
    """What no listener had that claimed a task; the code of a `Reason`."""

    FUNCTION = "unknown-function"
    KEY = "sealed"
    CODEC = "not-decoded"

    @classmethod
    def of(cls, error: str) -> "MissingAbility":
        """What this reason says, or its beginning."""
        if error.startswith((NOT_OPENED, SIGNAL_NOT_OPENED)):
            return cls.KEY
        return cls.CODEC if error.startswith(NOT_DECODED) else cls.FUNCTION

"""The calls of rows that are no tasks of Redis yet."""

from collections.abc import Callable

from expirebridge.errors import InvalidSetting
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.inspection import StoredCall


def add_calls(
    add: Callable[[StoredCall], None], settings: Settings, due_within: float | None
) -> Steps[int]:
    """Add the rows that Redis does not have; return how many are due later."""
    yield from ()
    if settings.ledger is None:
        return 0
    try:
        from expirebridge.ledger.inspection import LedgerInspector  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None
    return LedgerInspector(settings).add_calls(add, due_within=due_within)

"""Says that a ledger with a horizon keeps rows back, whose tasks are not in Redis yet."""

from expirebridge.ledger.calls import read_horizon, read_ledgers
from expirebridge.task.calls.call import Steps
from expirebridge.task.durations import human


def where_it_may_be(id: str) -> Steps[str | None]:
    """Return that its row may be kept back; None without a horizon."""
    horizon = yield from read_horizon(id)
    if horizon is None:
        return None
    return (
        f"it is due in more than {human(horizon / 1000)}, and its row is kept back in SQL: "
        "ledger.get finds it there, ledger.cancel and the like change it"
    )


def what_is_elsewhere(due_within: float) -> Steps[str | None]:
    """Return which rows are kept back; None without a horizon, and if it is further away."""
    known = yield from read_ledgers()
    horizons = [one.horizon for one in known.values() if one.horizon is not None]
    if not horizons or min(horizons) >= due_within * 1000:
        return None
    return (
        "rows of the ledger that are kept back in SQL, since they are due in more than "
        f"{human(min(horizons) / 1000)}, are not among these tasks"
    )

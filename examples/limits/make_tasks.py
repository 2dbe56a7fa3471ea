"""Makes tasks for the handlers in tasks/: more than their limits let run at once."""

from collections.abc import Iterable

from expirebridge import Bridge

EVENTS = ("placed", "paid", "shipped", "delivered")


def order_exports(bridge: Bridge, customer: str, months: Iterable[str]) -> list[str]:
    """Ask for a file for each month; return the ids."""
    return [
        bridge.make_task("exports.export", [customer, month], 0, tags=[customer]).id
        for month in months
    ]


def write_to_all(bridge: Bridge, numbers: Iterable[str], text: str) -> list[str]:
    """Send each number a message; return the ids."""
    return [bridge.make_task("sms.send", [number, text], 0).id for number in numbers]


def sell(bridge: Bridge, order: int) -> list[str]:
    """Tell what happened to an order; return the ids, which sort as the events do."""
    return [
        bridge.make_task(
            "order_events.apply", [order, event], 0, id=f"order-{order}-{number:06}"
        ).id
        for number, event in enumerate(EVENTS)
    ]


if __name__ == "__main__":
    with Bridge() as bridge:
        order_exports(bridge, "ann", [f"2026-{month:02}" for month in range(1, 13)])
        order_exports(bridge, "bob", ["2026-01"])
        write_to_all(bridge, [f"+49170{number:04}" for number in range(200)], "hi")
        for order in range(10):
            sell(bridge, order)

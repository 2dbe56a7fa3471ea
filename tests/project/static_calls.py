"""Right and wrong uses of `Call` and options, for type checkers: they read it, and nobody runs it.

Each line with a `type: ignore` is wrong; mypy's strict mode reports it if it does not find that.
"""

from datetime import timedelta
from typing import Any

from expirebridge import (
    AsyncBridge,
    Bridge,
    Call,
    Task,
    Then,
    every,
    handler,
    make_task,
    make_tasks,
)


def rate(order: int, note: str = "", *, urgent: bool = False) -> None: ...


async def remind(user: int) -> str:
    return str(user)


@handler(retry=[15], timeout="30s")
def charge(order: int, *cents: int, **labels: str) -> None: ...


@handler
async def sync() -> None: ...


@every("15m", tags=["sync"], retry=[15], late_after="5m", misfire="skip")
def clean() -> Then:
    return Then(rate, [17], "3d", id="rate-17", if_exists="keep", window="5m", timeout=30)


def right(bridge: Bridge) -> None:
    task: Task = make_task(Call(rate, 17), delay="72h")
    make_task(Call(rate, 17, "late", urgent=True), delay=timedelta(days=3), id=task.id)
    make_task(Call(rate, order=17), delay=60)
    make_task(Call(charge, 17, 5, 5, colour="red"), delay=60)
    make_task(Call(sync), delay=60)
    make_tasks([{"func": Call(remind, user), "delay": 60} for user in range(3)])
    bridge.make_task(Call(remind, 7), delay="1h", tags=["user-7"])
    bridge.watch("device:42", Call(remind, 42), ttl="60s")
    make_task(rate, [17], "72h")
    make_task("orders.rate", [17], "72h")


async def right_async(bridge: AsyncBridge) -> None:
    task: Task = await bridge.make_task(Call(remind, 7), delay="1h")
    await bridge.watch(task.id, Call(rate, 42, urgent=False), ttl="60s")


def wrong(bridge: Bridge, anything: Any) -> None:
    make_task(Call(rate, "17"), delay="72h")  # type: ignore[arg-type]
    make_task(Call(rate), delay="72h")  # type: ignore[call-arg]
    make_task(Call(rate, 17, "late", True), delay="72h")  # type: ignore[call-arg]
    make_task(Call(rate, 17, urgent="yes"), delay="72h")  # type: ignore[arg-type]
    make_task(Call(rate, 17, urgnt=True), delay="72h")  # type: ignore[call-arg]
    make_task(Call(remind, "7"), delay="1h")  # type: ignore[arg-type]
    make_task(Call(remind, 7, 8), delay="1h")  # type: ignore[call-arg]
    make_task(Call(charge, 17, "5"), delay=60)  # type: ignore[arg-type]
    make_task(Call(charge, 17, colour=5), delay=60)  # type: ignore[arg-type]
    make_task(Call(sync, anything), delay=60)  # type: ignore[call-arg]
    make_task(Call("orders.rate", 17), delay=60)  # type: ignore[arg-type]
    make_task(Call(rate, 17), 60)  # type: ignore[arg-type]
    make_tasks([{"func": Call(remind), "delay": 60}])  # type: ignore[call-arg]
    bridge.make_task(Call(remind, None), delay="1h")  # type: ignore[arg-type]
    bridge.watch("device:42", Call(remind, "42"), ttl="60s")  # type: ignore[arg-type]
    Then(rate, [17], retries=3)  # type: ignore[call-arg]
    Then(rate, [17], if_exists="take")  # type: ignore[arg-type]
    every("15m", timeout=[])  # type: ignore[arg-type]
    every("15m", if_exists="keep")  # type: ignore[call-arg]


async def wrong_async(bridge: AsyncBridge) -> None:
    await bridge.make_task(Call(remind, "7"), delay="1h")  # type: ignore[arg-type]
    await bridge.watch("device:42", Call(rate, 1, 2), ttl="60s")  # type: ignore[arg-type]

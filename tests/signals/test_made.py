"""What can be made with `on_signal=`, and with which arguments."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from expirebridge import (
    AsyncBridge,
    Bridge,
    Call,
    Change,
    InvalidTask,
    TaskDiffers,
    Then,
    every,
)
from expirebridge.handlers import Registry
from expirebridge.hooks import End
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.modules import forgotten, put
from tests.kit.steps import found
from tests.kit.witness import Witness, listening
from tests.signals.steps import make, taken

pytestmark = pytest.mark.servers("oldest")

ORDER = UUID(int=7)


class Handlers:
    """The handlers of a folder, by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._registry = Registry.load(folder)

    def __getattr__(self, name: str) -> Any:
        [found] = [one for one in self._registry if one.name == f"orders.{name}"]
        return found.function


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Handlers]:
    with forgotten(tmp_path):
        put(tmp_path, "kept/__init__.py", "")
        put(
            tmp_path,
            "kept/orders.py",
            """
            from uuid import UUID
            from expirebridge import handler

            @handler(typed=True)
            def cancel(order: UUID, price: int = 0): ...

            @handler(typed=True)
            def ship(order: UUID, price: int = 0): ...

            @handler(typed=True)
            def ship_cheap(order: UUID, price: float = 0): ...

            @handler(typed=True)
            def ship_numbered(order: int): ...

            @handler(private=True)
            def ship_privately(order): ...

            def ship_all(): ...
            """,
        )
        sys.path.insert(0, str(tmp_path))
        yield Handlers(tmp_path / "kept")


@pytest.fixture
def own(url: str, orders: Handlers) -> Iterator[Bridge]:
    """A bridge whose handlers these are."""
    with Bridge(url, tasks=str(orders.folder)) as bridge:
        yield bridge


def test_typed_arguments_are_checked_and_converted_for_both(
    orders: Handlers, own: Bridge, store: Store
) -> None:
    task = own.make_task(orders.cancel, [ORDER], "1h", id="a", on_signal=orders.ship)
    assert (task.args, task.on_signal) == ([str(ORDER)], "orders.ship")
    own.make_task(Call(orders.cancel, ORDER), delay="1h", id="b", on_signal=orders.ship)
    own.make_task(orders.cancel, [ORDER], "1h", id="c", on_signal="orders.ship_numbered")
    for id in ("a", "b"):
        assert own.signal(id) is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship", "b": "orders.ship"}


@pytest.mark.parametrize(
    ("func", "args", "second", "fault"),
    [
        ("cancel", [ORDER], "ship_numbered", "on_signal: ship_numbered: order is of type UUID"),
        ("cancel", [ORDER], "ship_all", r"on_signal: ship_all\(\): too many positional"),
        ("cancel", [ORDER, 1], "ship_cheap",
         "on_signal='orders.ship_cheap': its annotations write these arguments as other JSON than "
         "those of 'orders.cancel', and both get the same: annotate"),
    ],
)  # fmt: skip
def test_arguments_that_the_second_function_cannot_take_are_refused(
    func: str, args: list[Any], second: str, fault: str, orders: Handlers, own: Bridge
) -> None:
    with pytest.raises(InvalidTask, match=fault):
        own.make_task(getattr(orders, func), args, "1h", id="a", on_signal=getattr(orders, second))
    assert own.get("a") is None


@pytest.mark.parametrize("func", ["orders.cancel", "ship_privately"])
def test_arguments_that_one_of_both_keeps_private_are_in_no_key(
    func: str, orders: Handlers, own: Bridge, store: Store
) -> None:
    private = orders.ship_privately
    both = ("orders.cancel", private) if func == "orders.cancel" else (private, "orders.cancel")
    task = own.make_task(both[0], ["secret"], "1h", id="a", on_signal=both[1])
    assert task.key.endswith(b"?@")
    own.pause("a")
    own.signal("a")
    assert (name := own.get("a")) is not None
    assert name.key == f"a:?{name.func}?@".encode()
    assert name.args == ["secret"]


def test_no_call_is_taken_as_the_second_function(orders: Handlers, own: Bridge) -> None:
    with pytest.raises(InvalidTask, match="it gets the arguments of the task itself"):
        own.make_task(
            orders.cancel, [ORDER], "1h",
            on_signal=Call(orders.ship, ORDER),  # type: ignore[arg-type]
        )  # fmt: skip


async def test_whatever_makes_a_task_takes_it(url: str) -> None:
    item: dict[str, Any] = {"func": "orders.cancel", "delay": "1h", "on_signal": "orders.ship"}
    with Bridge(url) as bridge:
        bridge.make_group("open", [], close=False)
        bridge.make_group("g", [item, item])
        made = [
            bridge.make_task(**item),
            *bridge.make_tasks([item, item]),
            *bridge.make_tasks([item], group="open"),
        ]
        assert [task.on_signal for task in made] == ["orders.ship"] * 4
        async with AsyncBridge(url) as other:
            made += [await other.make_task(**item), *await other.make_tasks([item])]
            for id in [task.id for task in made] + ["g@g0", "g@g1"]:
                assert await other.signal(id) is Change.SIGNALLED


async def test_a_follow_up_of_a_task_waits_for_a_signal(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    async def order() -> Then:
        return Then("test.cancel", [7], "1h", id="next", on_signal="test.ship")

    async def order_once() -> Then:
        return Then("test.cancel", [8], "1h", on_signal="test.ship")

    ran: list[int] = []

    async def ship(number: int) -> None:
        ran.append(number)

    async def cancel(number: int) -> None: ...

    witness = Witness()
    async with listening(
        settings, witness, order=order, order_once=order_once, ship=ship, cancel=cancel
    ):
        first = await async_bridge.make_task("test.order", [], 0)
        second = await async_bridge.make_task("test.order_once", [], 0)
        await witness.until_ended(2, End.SUCCEEDED)
        ids = [(await found(async_bridge, task)).then for task in (first, second)]
        assert ids[0] == "next"
        for id in ids:
            assert id is not None
            assert await async_bridge.signal(id) is Change.SIGNALLED
        await witness.until_ended(4, End.SUCCEEDED)
    assert sorted(ran) == [7, 8]


OF_ITS_OWN = r"waits for no signal: make a task of its own, make_task\(\.\.\., on_signal=\)"


def test_what_comes_again_waits_for_no_signal(bridge: Bridge) -> None:
    other: dict[str, Any] = {"on_signal": "orders.ship"}
    with pytest.raises(TypeError, match=rf"^schedule\(\).*{OF_ITS_OWN}"):
        bridge.schedule("nightly", "orders.cancel", every="1h", **other)
    with pytest.raises(InvalidTask, match=rf"^series 0: .*{OF_ITS_OWN}"):
        bridge.schedule_many([{"id": "n", "func": "a.b", "every": "1h", **other}])
    with pytest.raises(TypeError, match=rf"^every\(\).*{OF_ITS_OWN}"):
        every("1h", **other)
    with pytest.raises(TypeError, match=rf"^watch\(\).*{OF_ITS_OWN}"):
        bridge.watch("backup", "orders.cancel", ttl="1h", **other)


def test_extending_takes_no_other_second_function(bridge: Bridge) -> None:
    make(bridge)
    with pytest.raises(TaskDiffers):
        make(bridge, if_exists="extend", delay="1h", on_signal="orders.keep")
    task = bridge.get("a")
    assert task is not None
    assert task.on_signal == "orders.ship"

"""Signals in a fleet: which functions listeners know, and what is said if they do not."""

from collections.abc import Mapping
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, Change, InvalidTask, Then
from expirebridge.checks import Level
from expirebridge.fleet.checks import check_functions
from expirebridge.fleet.comparing import compare, scope_of
from expirebridge.fleet.compatibility import Comparison, Verdict
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, inspection
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import Settled, Settlement, Walk
from expirebridge.task.calls.inspection import StoredCall
from expirebridge.task.missing_ability import MissingAbility
from expirebridge.task.task import State
from tests.kit import steps
from tests.kit.colours import asking
from tests.kit.steps import settle
from tests.kit.witness import registry_of

pytestmark = pytest.mark.servers("oldest")

LEASE = 10.0
DAY = 86_400_000
CANCEL, SHIP, BOTH = ("orders.cancel",), ("orders.ship",), ("orders.cancel", "orders.ship")
NEITHER = ("mail.send",)


def make(bridge: Bridge, id: str = "pay-42", delay: str = "0s", **options: Any) -> None:
    bridge.make_task("orders.cancel", [42], delay, id=id, **{"on_signal": "orders.ship", **options})


def join(store: Store, *names: str) -> str:
    """Beat as a listener does whose code has these functions; return its fingerprint."""
    shapes = dict.fromkeys(names, "(order)")
    code = fleet.digest_of(shapes)
    store.run(fleet.declare(code, shapes))
    store.run(claiming.heartbeat(f"of {code}", LEASE, [], code=code, functions=len(names)))
    return code


def claim(store: Store, code: str, token: str = "") -> Mapping[str, str]:
    """What a listener of this code takes in a fleet of several: the function of each task."""
    whole = (Walk(b"-inf", b"", b"+inf"),)
    call = claiming.claim_known(
        token or new_nonce(), Settings(), places=100, idle=True, code=code, walks=whole
    )
    return {task.id: task.func for task in store.run(call).tasks}


# Two codes


def test_each_code_takes_the_function_that_it_has(bridge: Bridge, store: Store) -> None:
    aa = join(store, *CANCEL)
    bb = join(store, *SHIP)
    make(bridge, "late")
    make(bridge, "paid")
    assert bridge.signal("paid") is Change.SIGNALLED
    assert claim(store, bb) == {"paid": "orders.ship"}
    assert claim(store, aa) == {"late": "orders.cancel"}


@pytest.mark.parametrize("after", [False, True])
def test_it_is_left_to_the_code_that_knows_both(
    after: bool, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    aa = join(store, *NEITHER)
    bb = join(store, *BOTH)
    make(bridge)
    if after:
        bridge.signal("pay-42")
    assert claim(store, aa) == {}
    assert client.hget("expirebridge:task:pay-42", "unknown") is None
    assert claim(store, bb) == {"pay-42": "orders.ship" if after else "orders.cancel"}


def test_a_deadline_that_nobody_can_run_has_not_decided(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    """It is passed over, not claimed, so a signal can still come: then it runs at once."""
    aa = join(store, *NEITHER)
    bb = join(store, *SHIP)
    make(bridge)
    assert claim(store, aa) == claim(store, bb) == {}
    assert client.hget("expirebridge:task:pay-42", "unknown")
    assert bridge.signal("pay-42") is Change.SIGNALLED
    assert client.hmget("expirebridge:task:pay-42", "unknown", "error") == [None, None]
    assert claim(store, bb) == {"pay-42": "orders.ship"}


def test_what_nobody_knows_after_a_signal_waits_and_is_told(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    aa = join(store, *NEITHER)
    bb = join(store, *CANCEL)
    make(bridge)
    bridge.signal("pay-42")
    assert claim(store, aa) == claim(store, bb) == {}
    found = store.run(inspection.find_unhandled(60, limit=10))
    assert found.functions(MissingAbility.FUNCTION) == ["orders.ship"]
    reason = bridge.why("pay-42")
    assert reason is not None
    assert reason.code == "unknown-function"
    assert "its function orders.ship is missing: no listener knows it" in reason.text
    assert "do not know: orders.ship (1)" in store.run(check_functions(LEASE)).message
    since = int(client.hget("expirebridge:task:pay-42", "unknown") or 0)
    client.hset("expirebridge:task:pay-42", "unknown", since - DAY)
    assert claim(store, aa) == {"pay-42": "orders.ship"}


def test_a_claim_of_the_one_code_decides_though_it_lacks_the_function(
    bridge: Bridge, store: Store
) -> None:
    aa = join(store, *SHIP)
    make(bridge)
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint=aa)
    assert [task.func for task in store.run(plain).tasks] == ["orders.cancel"]
    [_] = settle(store, Settlement("pay-42", "t", "unknown", 15.0, "unknown function"))
    assert bridge.signal("pay-42") is Change.BEGUN


def test_a_claim_without_the_function_of_the_signal_is_left_to_who_has_it(
    bridge: Bridge, store: Store
) -> None:
    aa = join(store, *CANCEL)
    make(bridge)
    bridge.signal("pay-42", {"ref": 7})
    plain = claiming.claim("t", Settings(), places=9, idle=True, fingerprint=aa)
    assert [task.func for task in store.run(plain).tasks] == ["orders.ship"]
    bb = join(store, *SHIP)
    lacks = Settlement("pay-42", "t", "unknown", 15.0, "unknown function")
    assert store.run(claiming.settle([lacks], Settings(), fingerprint=aa)) == [Settled.LEFT]
    assert claim(store, aa) == {}
    assert claim(store, bb) == {"pay-42": "orders.ship"}


# What the doctor says before it is signalled


def test_the_doctor_names_what_nobody_could_run_on_a_signal(bridge: Bridge, store: Store) -> None:
    join(store, *BOTH)
    make(bridge, "fine", "1h")
    assert store.run(check_functions(LEASE)).level is Level.OK
    make(bridge, "wrong", "1h", on_signal="orders.shp")
    make(bridge, "decided", "1h", on_signal="orders.gone")
    bridge.cancel("decided")
    bridge.run_now("decided")
    finding = store.run(check_functions(LEASE))
    assert (finding.level, finding.message) == (
        Level.WARNING,
        "tasks will wait if they are signalled: orders.shp: no listener knows it (did you mean "
        "'orders.ship'?)",
    )
    assert finding.remedy.endswith("which expirebridge compat --tasks FOLDER names")


def test_the_doctor_says_once_what_is_missing_for_either(bridge: Bridge, store: Store) -> None:
    join(store, *NEITHER)
    make(bridge, "a", "1h")
    make(bridge, "b", "1h")
    bridge.signal("b")
    finding = store.run(check_functions(LEASE))
    assert finding.message == (
        "tasks will wait when they are due: "
        "orders.ship: no listener knows it, orders.cancel: no listener knows it"
    )
    assert finding.remedy.endswith(": expirebridge list --func orders.ship")


# What a producer hears


ON_SIGNAL = {"func": "orders.cancel", "delay": 60, "on_signal": "orders.shp"}


@pytest.mark.parametrize(
    ("what", "args", "options"),
    [
        ("make_task", ("orders.cancel", [42], 60), {"on_signal": "orders.shp"}),
        ("make_tasks", ([ON_SIGNAL],), {}),
        ("make_group", ("g", [ON_SIGNAL]), {}),
        (
            "make_group",
            ("g", [{"func": "orders.cancel", "delay": 60}]),
            {"then": Then("orders.cancel", on_signal="orders.shp")},
        ),
    ],
)
@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_an_unknown_function_is_refused_and_warned_of(
    colour: Any,
    what: str,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    url: str,
    store: Store,
    bridge: Bridge,
    caplog: pytest.LogCaptureFixture,
) -> None:
    join(store, *BOTH)
    why = "no listener knows it (did you mean 'orders.ship'?)"
    strict = colour(url, unknown="refuse")
    with pytest.raises(InvalidTask) as refused:
        await asking(strict)(what, *args, **options)
    assert str(refused.value) == f"func='orders.shp': {why}"
    assert bridge.count().unfinished == 0
    warning = colour(url, unknown="warn")
    await asking(warning)(what, *args, **options)
    assert [record.getMessage() for record in caplog.records if "knows it" in record.message] == [
        f"orders.shp: {why}"
    ]
    for one in (strict, warning):
        await asking(one)("aclose" if colour is AsyncBridge else "close")


# Before a deploy


def ship(order: int, *, express: bool = False) -> None: ...


def cancel(order: int, reason: str = "") -> None: ...


def look(store: Store, **options: Any) -> Comparison:
    registry = registry_of(ship=ship, cancel=cancel)
    return store.run(compare(registry, store.run(scope_of(**options)), progress=lambda _: None))


def test_both_functions_count_until_one_is_decided(bridge: Bridge, store: Store) -> None:
    for id in ("waits", "signalled", "passed", "paused", "failed", "off"):
        bridge.make_task("test.cancel", [42, "late"], "1h", id=id, on_signal="test.ship")
    bridge.pause("paused")
    bridge.signal("signalled")
    bridge.run_now("passed")
    bridge.run_now("failed")
    assert len(steps.claim(store).tasks) == 3
    for id, outcome in (("passed", "retry"), ("failed", "failed"), ("signalled", "released")):
        settle(store, Settlement(id, "t", outcome, 60))
    bridge.cancel("off")
    bridge.run_now("off")
    groups = {
        id: (group.verdict, group.func, group.on_signal)
        for group in look(store, failed=True).groups()
        for id in group.ids
    }
    misfit, fits = Verdict.ARGUMENTS_DO_NOT_FIT, Verdict.FITS
    assert groups == {
        "waits": (misfit, "test.cancel", "test.ship"),
        "paused": (misfit, "test.cancel", "test.ship"),
        "signalled": (misfit, "test.ship", None),
        "passed": (fits, "test.cancel", None),
        "failed": (fits, "test.cancel", None),
        "off": (fits, "test.cancel", None),
    }


def test_the_successor_of_a_running_task_waits_for_its_own_signal(
    bridge: Bridge, store: Store
) -> None:
    make(bridge)
    steps.claim(store)
    assert calls(store, State.RUNNING) == {"pay-42": ("orders.cancel", None)}
    make(bridge, delay="1h", if_exists="replace")
    assert calls(store, State.RUNNING) == {"pay-42": ("orders.cancel", "orders.ship")}
    bridge.signal("pay-42")
    assert calls(store, State.RUNNING) == {"pay-42": ("orders.ship", None)}


def calls(store: Store, state: State) -> Mapping[str, tuple[str | None, str | None]]:
    page: list[StoredCall] = store.run(inspection.calls_page(state, "0")).calls
    return {call.id: (call.func, call.on_signal) for call in page}

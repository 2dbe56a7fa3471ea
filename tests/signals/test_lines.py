"""Tasks that a signal decides are exported as lines, and imported: they are what they were."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, Change, InvalidTask, State
from expirebridge.store.client import Store
from tests.kit.cases import each
from tests.kit.invoked import invoke
from tests.kit.private_keys import K1
from tests.kit.servers import AnyServer
from tests.signals.steps import end, make, read, taken

pytestmark = pytest.mark.servers("oldest")


@pytest.fixture
def new_url(server: AnyServer) -> str:
    return f"redis://127.0.0.1:{server.port}/3"


@pytest.fixture
def new_client(new_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(new_url) as client:
        yield client


@pytest.fixture
def new(new_url: str) -> Iterator[Bridge]:
    with Bridge(new_url) as bridge:
        yield bridge


@pytest.fixture
def new_store(new_client: redis.Redis) -> Store:
    return Store(new_client, prefix="expirebridge")


def carry(url: str, new_url: str, folder: Path) -> list[dict[str, Any]]:
    """Export all, import it elsewhere, and give the lines."""
    file = folder / "tasks.ndjson"
    invoke("export", str(file), url=url)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert invoke("import", str(file), url=new_url) == f"created  {len(lines)}\nkept     0\n"
    return lines


def test_one_that_waits_can_be_signalled(
    url: str, new_url: str, bridge: Bridge, new: Bridge, new_client: redis.Redis,
    new_store: Store, tmp_path: Path,
) -> None:  # fmt: skip
    make(bridge)
    make(bridge, "paused")
    bridge.pause("paused")
    drawn = bridge.make_task("orders.cancel", [1], "1h", on_signal="orders.ship")
    assert {line["on_signal"] for line in carry(url, new_url, tmp_path)} == {"orders.ship"}
    assert new_client.hget("expirebridge:meta", "features") == b"signals"
    assert new_client.hexists("expirebridge:signals", "since")
    for id in ("a", "paused", drawn.id):
        assert read(new, id).on_signal == "orders.ship"
        assert new.signal(id) is Change.SIGNALLED
    assert read(new, "paused").state is State.PAUSED
    assert taken(new_store) == {"a": "orders.ship", drawn.id: "orders.ship"}


def test_the_first_claim_decides_of_the_first_that_is_imported(
    url: str, new_url: str, bridge: Bridge, new: Bridge, new_store: Store, tmp_path: Path
) -> None:
    make(bridge, delay="0s")
    carry(url, new_url, tmp_path)
    assert taken(new_store) == {"a": "orders.cancel"}
    end(new_store, "a", how="retry")
    assert new.signal("a") is Change.BEGUN


def test_one_that_was_signalled_knows_its_signal(
    url: str, new_url: str, bridge: Bridge, new: Bridge, new_store: Store, tmp_path: Path
) -> None:
    make(bridge)
    assert bridge.signal("a", {"ref": 7}, by="psp é") is Change.SIGNALLED
    carry(url, new_url, tmp_path)
    assert read(new).signal == read(bridge).signal
    assert new.signal("a", {"ref": 7}, by="psp é") is Change.SIGNALLED
    assert new.signal("a", {"ref": 8}, by="psp é") is Change.SIGNALLED_BEFORE
    assert taken(new_store) == {"a": "orders.ship"}


def test_one_whose_deadline_has_decided_has_begun(
    url: str, new_url: str, bridge: Bridge, new: Bridge, store: Store, new_store: Store,
    tmp_path: Path,
) -> None:  # fmt: skip
    make(bridge, delay="0s")
    taken(store)
    end(store, "a", how="retry")
    [line] = carry(url, new_url, tmp_path)
    assert (line["passed"], "on_signal" in line) == ("orders.ship", False)
    assert new.signal("a") is Change.BEGUN
    new.run_now("a")
    assert taken(new_store) == {"a": "orders.cancel"}


def test_what_is_sealed_is_opened_where_it_is_imported(
    url: str, new_url: str, new_client: redis.Redis, new_store: Store, tmp_path: Path
) -> None:
    with Bridge(url, keys=K1) as bridge, Bridge(new_url, keys=K1) as new:
        for id in ("waits", "signalled"):
            make(bridge, id)
        assert bridge.signal("signalled", {"ref": "secret"}, by="psp") is Change.SIGNALLED
        lines = carry(url, new_url, tmp_path)
        assert "secret" not in json.dumps(lines)
        for id in ("waits", "signalled"):
            assert (read(new, id).args, read(new, id).in_clear) == ([42], ())
        signal = read(new, "signalled").signal
        assert signal is not None
        assert signal.payload == {"ref": "secret"}
        assert new.signal("signalled", {"ref": "secret"}, by="psp") is Change.SIGNALLED
        assert new.signal("signalled", {"ref": "other"}, by="psp") is Change.SIGNALLED_BEFORE
        assert new.signal("waits", 7) is Change.SIGNALLED
        assert read(new, "waits").args == [42]
    assert taken(new_store) == {"waits": "orders.ship", "signalled": "orders.ship"}


def test_the_longest_payloads_are_imported(
    url: str, new_url: str, bridge: Bridge, new: Bridge, tmp_path: Path
) -> None:
    longest = "x" * (64 * 1024 - 2)
    make(bridge)
    bridge.signal("a", longest, by="\u00e9" * 200)
    make(bridge, "sealed")
    with Bridge(url, keys=K1) as with_keys:
        with_keys.signal("sealed", longest)
    carry(url, new_url, tmp_path)
    assert read(new).signal == read(bridge).signal


LINE = {"id": "a", "func": "orders.ship", "args": "[42]", "due": "2031-01-01T00:00:00Z"}
SIGNALLED = {"lost": "orders.cancel?[42]", "signal": "7", "signalled": "1795846776606 0a1b psp"}
TOGETHER = "it is missing; lost, signal and signalled belong together"


def signalled(left_out: str = "", **other: Any) -> dict[str, Any]:
    return {name: value for name, value in (SIGNALLED | other).items() if name != left_out}


@each(
    ("fields", "reason"),
    [
        ({"on_signal": "no name"}, "on_signal: func='no name': write module.function"),
        ({"on_signal": 7}, "on_signal: write text"),
        ({"on_signal": "orders.ship"}, "on_signal='orders.ship': it is the function of the task"),
        ({"passed": "../x"}, "passed: func='../x': write module.function"),
        ({"passed": "orders.ship"}, "passed='orders.ship': it is the function of the task"),
        (
            {"on_signal": "a.b", "passed": "a.b"},
            "on_signal: a task cannot have it together with passed",
        ),
        (signalled(on_signal="a.b"), "on_signal: a task cannot have it together with signalled"),
        (signalled(passed="a.b"), "passed: a task cannot have it together with signalled"),
        (signalled("lost"), f"lost: {TOGETHER}"),
        (signalled("signal"), f"signal: {TOGETHER}"),
        (signalled("signalled"), f"signalled: {TOGETHER}"),
        ({"lost": "orders.cancel?[42]"}, f"signal: {TOGETHER}"),
        (signalled(lost="orders.cancel"), "lost: write the call that the signal replaced"),
        (signalled(lost="orders.cancel?secret"), "lost: write the call that the signal replaced"),
        (signalled(lost="x?[42]"), "lost: func='x': write module.function"),
        (signalled(lost="orders.ship?[42]"), "lost='orders.ship': it is the function of the task"),
        (signalled(signal="secret"), "signal: write the payload, JSON, as text"),
        (signalled(signal=""), "signal: write the payload, JSON, as text"),
        (signalled(signal="1,2"), "signal: write the payload, JSON, as text"),
        (signalled(signal="18446744073709551616"), "signal: write the payload, JSON, as text"),
        (signalled(signal={"ref": 7}), "signal: write text"),
        (signalled(signal='"%s"' % ("x" * 65_535)), "signal: 65,537 bytes; at most 65,536"),
        (signalled(signal="sealed:secret"), "signal: it begins as what was sealed, and is damaged"),
        (signalled(signal="sealed:k:" + "A" * 99_000), "signal: it begins as what was sealed"),
        (signalled(signalled="now 0a1b psp"), "signalled: write the ms since 1970, a digest, and"),
        (signalled(signalled="1795846776606"), "signalled: write the ms since 1970, a digest, and"),
        (signalled(signalled="1 0a " + "x" * 201), "signalled: write the ms since 1970"),
        (signalled(signalled="1 0a x\ny"), "signalled: write the ms since 1970, a digest, and who"),
    ],
)  # fmt: skip
def test_a_line_that_no_signal_has_made_is_refused(
    bridge: Bridge, url: str, tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    file = tmp_path / "tasks.ndjson"
    good = LINE | {"id": "good"} | SIGNALLED
    file.write_text(json.dumps(good) + "\n" + json.dumps(LINE | fields) + "\n")
    with pytest.raises(InvalidTask) as refused:
        invoke("import", str(file), url=url)
    assert f"line 2: {reason}" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert str(refused.value).endswith("; nothing was imported")
    assert bridge.count().pending == 0


def test_who_sends_a_signal_by_a_function_is_imported(
    url: str, new_url: str, bridge: Bridge, new: Bridge, client: redis.Redis, tmp_path: Path
) -> None:
    """It takes characters that Python does not print."""
    make(bridge)
    bridge.signal("a", 7, by="a b")
    stored: Any = client.hget("expirebridge:task:a", "signalled")
    client.hset("expirebridge:task:a", "signalled", stored.replace(b"a b", b"a\xc2\xa0b"))
    carry(url, new_url, tmp_path)
    signal = read(new).signal
    assert signal is not None
    assert signal.by == "a\u00a0b"

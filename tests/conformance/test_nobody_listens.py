"""What holds of plain commands that are sent while no listener is up."""

import time

from expirebridge import Bridge
from tests.conformance.clients import Client
from tests.conformance.stage import Stage, state
from tests.kit.patience import until

HOUR = 3600_000


def test_what_a_listener_finds_when_it_starts(quiet: Stage, plain: Client) -> None:
    keys = {id: f"{id}:?acts.note?[]" for id in ("later", "sooner", "paused", "deleted", "lost",
                                                 "alive")}  # fmt: skip
    with Bridge(quiet.url) as bridge:
        for id in ("later", "sooner", "paused"):
            bridge.make_task("acts.note", [], "1h", id=id)
        bridge.make_task("acts.note", [], "1s", id="deleted")
    plain.send("PEXPIRE", keys["later"], 2 * HOUR)
    plain.send("PEXPIRE", keys["sooner"], HOUR // 2)
    plain.send("PERSIST", keys["paused"])
    plain.send("DEL", keys["deleted"])
    plain.send("SET", keys["lost"], "", "PX", 1)
    plain.send("SET", keys["alive"], "", "PX", HOUR)
    due = {id: time.time() * 1000 + int(plain.send("PTTL", keys[id])) for id in ("sooner", "alive")}
    until(lambda: plain.send("PTTL", keys["lost"]) == "-2")

    def score(id: str) -> float:
        return float(plain.send("ZSCORE", "expirebridge:pending", id) or 0)

    with quiet.listening():
        # A scan finds what lives: a sooner deadline, a pause, a new task.
        until(lambda: all(abs(score(id) - ends) < 1000 for id, ends in due.items()))
        until(lambda: state(plain, "paused") == "paused")
        # A DEL that nobody heard is not honoured, and what expired unheard was never known.
        quiet.ran("deleted")
        assert plain.send("EXISTS", "expirebridge:task:lost") == "0"
        plain.send("PEXPIRE", keys["later"], 50)
        quiet.ran("later")
        plain.send("PEXPIRE", keys["paused"], 50)
        quiet.ran("paused")


def test_a_put_off_holds_although_nobody_heard_it(quiet: Stage, plain: Client) -> None:
    """Its old time has come when the listener starts; the key, which lives, decides."""
    due, id = 0.0, ""
    for id, delay in (("a", 0.5), ("b", 5)):
        with Bridge(quiet.url) as bridge:
            task = bridge.make_task("acts.note", [], delay, id=id)
        due = time.time() + delay + 1.5
        if plain.send("PEXPIREAT", task.key, int(due * 1000) + 1) == "1":
            break
    with quiet.listening():
        assert quiet.ran(id).at >= due

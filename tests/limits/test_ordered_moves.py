"""Ordered lanes while a database is moved, or exported and imported: all run in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from expirebridge import Change, State
from expirebridge.errors import MoveRefused
from expirebridge.limits.calls import declare_limits, let_pass
from expirebridge.limits.hold_calls import put_hold, release_hold
from expirebridge.task.calls import claiming, producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.invoked import invoke
from tests.kit.servers import AnyServer
from tests.kit.sides import Side, Sides, migrator_of
from tests.kit.steps import new as new_task
from tests.kit.steps import server_ms

pytestmark = pytest.mark.servers("oldest")

LIMITS = [
    ("f step.run", b'[["line",0,"to",null]]'),
    ("l line", b'{"most":1,"ordered":true,"blocks":true}'),
]


@pytest.fixture
def sides(server: AnyServer) -> Iterator[Sides]:
    both = [Side(f"redis://127.0.0.1:{server.port}/{number}", 1) for number in (1, 3)]
    for side in both:
        side.parts[0].run(declare_limits("dd", LIMITS))
    yield both[0], both[1]
    for side in both:
        side.close()


def make(side: Side, *ids: str, lane: str = "x", seconds: float = -60) -> None:
    """Make tasks of a lane, each due a millisecond after the one before."""
    due = server_ms(side.client) + round(seconds * 1000)
    side.parts[0].run(
        producing.make([
            new_task(id, due + place, call=f'step.run?["{lane}"]'.encode(), relative=False)
            for place, id in enumerate(ids)
        ])
    )  # fmt: skip


def taken(side: Side) -> list[str]:
    claim = claiming.claim(f"t{server_ms(side.client)}", side.settings, places=100, idle=True)
    return [task.id for task in side.parts[0].run(claim).tasks]


def end(side: Side, id: str, outcome: str = "succeeded", *, delay: float = 0) -> None:
    token = side.record(id)[b"token"].decode()
    settlement = Settlement(id, token, outcome, delay, "")
    assert side.parts[0].run(claiming.settle([settlement], side.settings))


def sweep(side: Side) -> None:
    while side.parts[0].run(reconciling.sweep(side.settings)).more:
        pass


def run_all(side: Side) -> list[str]:
    """Run what can run, each at once, until nothing can."""
    ran: list[str] = []
    sweep(side)
    while ids := taken(side):
        for id in ids:
            end(side, id)
        ran += ids
    return ran


def test_a_retry_is_not_overtaken_while_it_moves(sides: Sides) -> None:
    old, new = sides
    make(old, "a1", "a2", "a3")
    assert taken(old) == ["a1"]
    end(old, "a1", "retry", delay=3600)
    old.beat()
    migrator = migrator_of(old, new)
    migrator.begin()
    migrator.run_pass()
    assert run_all(old) == []
    migrator.run_pass()
    assert run_all(new) == []
    assert new.bridge.run_now("a1") is Change.DUE_NOW
    assert run_all(new) == ["a1", "a2", "a3"]


def test_what_is_due_is_not_overtaken_by_what_moved_before(sides: Sides) -> None:
    old, new = sides
    make(old, "a1", "a2")
    make(old, "a3", seconds=3)
    make(old, "a4", seconds=3600)
    old.beat()
    migrator = migrator_of(old, new)
    migrator.begin()
    assert run_all(old) == []
    make(new, "a0")
    assert run_all(new) == []
    migrator.run_pass()
    assert new.ids(State.PENDING) | new.ids(State.WAITING) == {"a0", "a1", "a2", "a3", "a4"}
    for id in ("a3", "a4"):
        new.bridge.run_now(id)
    assert run_all(new) == ["a1", "a2", "a0", "a3", "a4"]


def test_none_begins_there_while_one_of_its_lane_runs_here(sides: Sides) -> None:
    old, new = sides
    make(old, "a1", "a2")
    make(old, "b1", lane="y")
    assert taken(old) == ["a1", "b1"]
    old.beat()
    migrator = migrator_of(old, new)
    migrator.begin()
    make(new, "a3")
    for _ in range(2):
        migrator.run_pass()
        assert run_all(new) == []
    end(old, "b1")
    end(old, "a1", "failed")
    assert run_all(old) == []
    migrator.run_pass()
    assert new.ids(State.FAILED) == {"a1"}
    assert run_all(new) == []
    assert new.parts[0].run(let_pass("a1"))
    assert run_all(new) == ["a2", "a3"]


def test_a_failed_one_holds_its_lane_there_too(sides: Sides) -> None:
    old, new = sides
    make(old, "a1", "a2")
    taken(old)
    end(old, "a1", "failed")
    migrator = migrator_of(old, new)
    migrator.begin()
    assert migrator.run()
    make(new, "a3")
    assert run_all(new) == []
    assert new.bridge.run_now("a1") is Change.DUE_NOW
    assert run_all(new) == ["a1", "a2", "a3"]


@pytest.mark.parametrize("has_begun_to_move", [True, False])
def test_what_a_hold_lets_go_over_a_time_is_not_overtaken_by_a_move(
    sides: Sides, has_begun_to_move: bool
) -> None:
    """The first of the lane is let go in half an hour: those behind it wait there, too."""
    old, new = sides
    migrator = migrator_of(old, new)
    old.parts[0].run(put_hold("func step.run", until=None, reason="", by=""))
    make(old, "b1", lane="y", seconds=-61)
    make(old, "a1", "a2", "a3")
    assert taken(old) == []
    if has_begun_to_move:
        migrator.begin()
    old.parts[0].run(release_hold("func step.run", spread=3600))
    if not has_begun_to_move:
        migrator.begin()
    sweep(old)
    new.parts[0].run(release_hold("func step.run"))
    make(new, "a4")
    assert migrator.run()
    ran = run_all(new)
    if not has_begun_to_move:
        assert ran == ["b1"]
        assert new.bridge.run_now("a1") is Change.DUE_NOW
        ran += run_all(new)
    assert [id for id in ran if id != "b1"] == ["a1", "a2", "a3", "a4"]
    assert new.client.keys("expirebridge:lane*") == new.client.keys("expirebridge:queue*") == []


def test_a_failed_one_that_runs_again_still_holds_its_lane_there(sides: Sides) -> None:
    old, new = sides
    make(old, "a1", "a2")
    taken(old)
    end(old, "a1", "failed")
    old.bridge.run_now("a1")
    migrator = migrator_of(old, new)
    migrator.begin()
    assert migrator.run()
    assert run_all(new) == ["a1", "a2"]


def test_limits_that_are_declared_there_later_know_who_has_the_slot(sides: Sides) -> None:
    old, new = sides
    new.client.flushdb()
    make(old, "a1", "a2")
    make(old, "b1", "b2", lane="y")
    taken(old)
    end(old, "a1", "failed")
    end(old, "b1", "retry", delay=3600)
    migrator = migrator_of(old, new)
    migrator.begin()
    migrator.run_pass()
    sweep(new)
    new.parts[0].run(declare_limits("dd", LIMITS))
    assert run_all(new) == []


def test_what_is_made_here_later_runs_there_in_order(sides: Sides) -> None:
    old, new = sides
    old.beat()
    migrator = migrator_of(old, new)
    migrator.begin()
    migrator.run_pass()
    make(old, "a1")
    assert run_all(old) == []
    make(old, "a2")
    migrator.run_pass()
    assert run_all(new) == ["a1", "a2"]
    assert run_all(old) == []


def test_a_move_that_is_refused_lets_lanes_go_on(sides: Sides) -> None:
    old, new = sides
    make(new, "a1")
    old.client.hset("expirebridge:ledger", "nonce", "n")
    with pytest.raises(MoveRefused):
        migrator_of(old, new).begin()
    assert run_all(new) == ["a1"]


def test_and_back_again(sides: Sides) -> None:
    old, new = sides
    make(old, "a1", "a2")
    taken(old)
    end(old, "a1", "retry", delay=3600)
    for source, target in ((old, new), (new, old)):
        migrator = migrator_of(source, target)
        migrator.begin()
        assert migrator.run()
        assert run_all(target) == []
    old.bridge.run_now("a1")
    assert run_all(old) == ["a1", "a2"]
    assert old.client.keys("expirebridge:lane*") == old.client.keys("expirebridge:queue*") == []


def test_why_names_the_move(sides: Sides) -> None:
    old, new = sides
    make(old, "a1")
    migrator_of(old, new).begin()
    assert taken(old) == []
    reason = old.bridge.why("a1")
    assert reason is not None
    assert "moved to" in reason.text


def test_a_file_keeps_the_order_too(sides: Sides, tmp_path: Path) -> None:
    old, new = sides
    make(old, "a1", "a2")
    make(old, "b1", "b2", lane="y")
    make(old, "c1", "c2", lane="z")
    make(old, "d1", "d3", lane="d")
    assert taken(old) == ["a1", "b1", "c1", "d1"]
    end(old, "a1", "retry", delay=3600)
    end(old, "b1", "failed")
    end(old, "c1", "retry", delay=3600)
    end(old, "d1")
    old.bridge.pause("c1")
    make(old, "a3")
    make(old, "d2", "d4", lane="d")
    file = str(tmp_path / "tasks.ndjson")
    invoke("export", file, url=old.url)
    for _ in range(2):
        invoke("import", file, url=new.url)
        (tmp_path / "tasks.ndjson.imported").unlink()
    assert new.ids(State.PAUSED) == {"b1", "c1"}
    assert run_all(new) == ["d3", "d2", "d4"]
    for ids in (["a1", "a2", "a3"], ["b1", "b2"], ["c1", "c2"]):
        new.bridge.run_now(ids[0])
        assert run_all(new) == ids
    assert new.client.keys("expirebridge:lane*") == []

"""The package stands without a room: the spine's tests pass on a copy from which it is deleted."""

import pytest

from expirebridge.capabilities import CAPABILITIES
from tests.kit.without import run_spine, taken_out, unimportable, unreadable


@pytest.mark.rest
@pytest.mark.parametrize("room", CAPABILITIES)
def test_nothing_that_is_left_asks_for_it(room: str) -> None:
    with taken_out(room) as copy:
        assert unimportable(copy) == {}
        assert unreadable(copy) == []


@pytest.mark.rest
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("room", CAPABILITIES)
def test_the_spine_s_tests_pass_without_it(room: str) -> None:
    with taken_out(room) as copy:
        assert run_spine(room, copy) == 0


@pytest.mark.rest
def test_what_uses_a_room_that_was_taken_out_is_found() -> None:
    with taken_out("moving") as copy:
        package = copy / "expirebridge"
        with (package / "task" / "keys.py").open("a") as planted:
            planted.write("\nfrom expirebridge.moving import calls\n")
        with (package / "task" / "lua" / "get.lua").open("a") as planted:
            planted.write("\n-- include migrated\n")
        assert "expirebridge.task.keys" in unimportable(copy)
        assert "task/lua/get.lua includes migrated" in unreadable(copy)

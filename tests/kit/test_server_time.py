"""The scripts of tests differ from the shipped ones where these meet the server's time."""

import re
from collections import Counter

import pytest

from expirebridge.store import script_loader
from expirebridge.store.script_loader import SHIPPED, Script
from expirebridge.testing import time
from tests.kit.lua import FILES, NAMES

OF_TIME = re.compile(
    r"'(TIME|P?EXPIRE\w*|P?TTL|PX|EX|PXAT|EXAT|KEEPTTL|SETEX|PSETEX|GETEX|HEXPIRE\w*|HTTL)'"
)
"""The commands and options by which a script learns a time, or gives the server one."""


def test_these_are_all_places_where_a_script_meets_the_servers_time() -> None:
    found = {
        (path.stem, word)
        for path in FILES
        for word in OF_TIME.findall(re.sub("--.*", "", path.read_text()))
    }
    assert found == {
        ("clock", "TIME"),
        ("clock", "PXAT"),
        ("clock", "PEXPIRETIME"),
        # By the time that is left, to which read_clock adds the moved time.
        ("clock", "PTTL"),
        # A time to live, which any clock counts down alike.
        ("tally", "EXPIRE"),
        ("relay_create", "PEXPIRE"),
        ("remove_series", "PX"),
        # For a unique id.
        ("checks", "TIME"),
    }


def _code_of(script: Script) -> Counter[str]:
    code = re.sub(r"--.*|^local [\w, ]+ do$", "", script.plain.text, flags=re.MULTILINE)
    return Counter(line for line in code.splitlines() if line.strip())


def test_a_script_differs_by_the_offset_alone() -> None:
    for name in NAMES:
        shipped = _code_of(SHIPPED.load(name))
        moved = _code_of(time.movable().load(name))
        if "  local time = redis.call('TIME')" not in shipped:
            assert moved == shipped, name
            continue
        removed = shipped - moved
        assert removed.total() <= 3, name
        assert all(OF_TIME.search(line) or "time[2]" in line for line in removed), name
        assert "local offset = tonumber(redis.call('GET', own_key('offset')) or 0)" in moved, name


def test_a_file_that_has_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(time._CHANGES, "include/clock", [("what is not there", "")])
    time.movable.cache_clear()
    with pytest.raises(ValueError, match=r"include/clock\.lua has changed: 'what is not there'"):
        time.movable()
    monkeypatch.undo()
    time.movable.cache_clear()


def test_a_library_is_in_use_for_as_long_as_its_block() -> None:
    other = script_loader.ScriptLibrary({"get": "-- flags: no-writes\nreturn 1\n"})
    with script_loader.using(other):
        assert script_loader.load("get").plain.text.endswith("return 1\n")
    assert script_loader.load("get") is SHIPPED.load("get")

"""How many workers `listen --workers` starts."""

import math
import os
from pathlib import Path

import pytest

from expirebridge.errors import InvalidSetting
from expirebridge.listener import cores
from expirebridge.listener.cores import usable_cores
from expirebridge.listener.supervisor import supervisor
from expirebridge.listener.supervisor.supervisor import count_of


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("4", 4), ("256", 256), ("007", 7)])
def test_a_number_is_taken(text: str, number: int) -> None:
    assert count_of(text) == number


@pytest.mark.parametrize(
    "text", ["0", "-1", "257", "", "two", "2.5", "1e2", " 2", "²", "٣", "AUTO", "0000000025600"]
)
def test_what_is_no_number_of_workers_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="from 1 to 256, or auto"):
        count_of(text)


def test_auto_is_a_worker_for_each_core_of_this_process() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == count_of("auto") == 1
    finally:
        os.sched_setaffinity(0, before)
    assert 1 <= count_of("auto") <= len(before)


def test_auto_is_no_more_than_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "usable_cores", lambda: 1000)
    assert count_of("auto") == 256


@pytest.mark.parametrize(
    ("limits", "share"),
    [
        ({"a/b": "200000 100000"}, 2.0),
        ({"a/b": "max 100000", "a": "150000 100000"}, 1.5),  # that of the group around it
        ({"a/b": "400000 100000", ".": "50000 100000"}, 0.5),
        ({"a/b": "max 100000"}, math.inf),
        ({"a/b": "what"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_share_of_a_container_is_the_least_around_it(
    tmp_path: Path, limits: dict[str, str], share: float
) -> None:
    groups = tmp_path / "groups"
    (groups / "a" / "b").mkdir(parents=True)
    for group, limit in limits.items():
        (groups / group / "cpu.max").write_text(f"{limit}\n")
    own = tmp_path / "own"
    own.write_text("12:cpuset:/ignored\n0::/a/b\n")
    assert cores._share(own, groups) == share
    assert cores._share(tmp_path / "missing", groups) == math.inf


def test_a_part_of_a_core_is_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, expected in ((0.2, 1), (1.2, 2)):
        monkeypatch.setattr(cores, "_share", lambda *_, share=share: share)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
        assert usable_cores() == expected

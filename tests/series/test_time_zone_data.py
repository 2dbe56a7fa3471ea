"""Hosts with older and with later time zone data beside each other, as real processes."""

import re
import subprocess
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, State, Task
from tests.kit.processes import listener, log_of, until_logged

HANDLERS = """
from expirebridge import every

@every("30 2 * * *", tz="Europe/Berlin", id="nightly")
def nightly():
    ...
"""
OLD, NEW = "2091a", "2091b"
MOVED = re.compile(r"series nightly: its next tick is (-?\d+) s later, by time zone data (\S+ \d+)")


@pytest.fixture
def zones(tmp_path: Path) -> dict[str, str]:
    """Two folders of zones: by the later data, Berlin is one hour ahead of UTC, and not three."""
    found = {}
    for version, hours in ((OLD, 3), (NEW, 1)):
        folder, source = tmp_path / version, tmp_path / f"{version}.zic"
        source.write_text(f"Zone Europe/Berlin {hours}:00 - %z\n")
        subprocess.run(["/usr/sbin/zic", "-d", folder, source], check=True)
        (folder / "tzdata.zi").write_text(f"# version {version}\n")
        found[version] = str(folder)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "reports.py").write_text(HANDLERS)
    return folder


def test_later_data_move_the_waiting_tick_and_older_ones_do_not(
    bridge: Bridge, client: redis.Redis, url: str, folder: Path, zones: dict[str, str]
) -> None:
    with listener(url, folder, PYTHONTZPATH=zones[OLD]) as old:
        until_logged("series nightly: created", folder, process=old)
        before = tick_of(bridge)
        assert before.due.strftime("%H:%M") == "23:30"
        with listener(url, folder, PYTHONTZPATH=zones[NEW]) as new:
            until_logged("series nightly: its next tick", folder, process=new)
        after = tick_of(bridge)
        assert (after.due - before.due).total_seconds() == 7200
        assert MOVED.findall(log_of(folder)) == [("7200", f"{NEW} 3600")]
        assert not client.exists(before.key)
    # The older data come back, and look once more.
    with client.monitor() as monitor, listener(url, folder, PYTHONTZPATH=zones[OLD]):
        for seen in monitor.listen():
            if seen["command"].startswith("ZRANGEBYSCORE expirebridge:tzdata"):
                break
    assert tick_of(bridge).id == after.id
    assert len(MOVED.findall(log_of(folder))) == 1


def tick_of(bridge: Bridge) -> Task:
    [task] = bridge.list(state=State.PENDING).tasks
    return task

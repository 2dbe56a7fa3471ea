"""A failed test prints what it knows: logs, reports and tasks; a passed one prints nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.kit.processes import HANDLERS, ROOT

INNER = """
import asyncio
import os
from pathlib import Path

import pytest

from expirebridge import Bridge
from expirebridge.settings import Settings
from tests.kit.processes import Reports, listener
from tests.kit.witness import Witness, listening


@pytest.fixture
def url():
    return os.environ["URL"]


@pytest.fixture
def tasks():
    return Path(os.environ["TASKS"])


def test_of_a_process(url, tasks):
    with Bridge(url) as bridge:
        bridge.make_task("acts.hold", [], 0, id="held")
        bridge.make_task("acts.note", [], 3600, id="far-off")
        with listener(url, tasks):
            assert Reports(int(os.environ["REPORTS_PORT"])).next().word == "ended"


async def test_of_a_witness(url):
    witness = Witness()

    async def fail():
        raise ValueError("refused")

    async with listening(Settings(url=url), witness, fail=fail):
        with Bridge(url) as bridge:
            bridge.make_task("test.fail", [], 0, id="lost", retry=[])
        await witness.until_ended()
        assert not witness.ended()


def test_that_passes(url):
    with Bridge(url) as bridge:
        assert bridge.get("lost").state == "failed"
"""


@pytest.fixture
def printed(url: str, client: redis.Redis, tmp_path: Path) -> str:
    """What a run of the tests above prints."""
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "acts.py").write_text(HANDLERS)
    (tmp_path / "test_inner.py").write_text(INNER)
    port = str(client.get_connection_kwargs()["port"])
    ended = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no",
            "-p", "tests.kit.last_words", "-o", "asyncio_mode=auto", "--rootdir", tmp_path,
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {
            "URL": url, "TASKS": str(tmp_path / "tasks"), "REPORTS_PORT": port,
            "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip
    assert "2 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    return ended.stdout


def test_a_failed_test_prints_what_it_knows(printed: str) -> None:
    of_process, _, of_witness = printed.partition("_ test_of_a_witness _")
    assert "/listeners.log -" in of_process
    assert "listening on " in of_process
    assert "\ndatabase 1: held: running, " in of_process
    assert "'call': 'acts.hold?[]'" in of_process
    assert "far-off: " not in of_process
    assert "- Events of witness 1 -" in of_witness
    assert "\nEnded(" in of_witness
    assert "database 1: lost: failed, " in of_witness
    assert "refused" in of_witness
    assert "/listeners.log -" not in of_witness

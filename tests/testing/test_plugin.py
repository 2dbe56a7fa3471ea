"""The pytest plugin, in runs of pytest of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from expirebridge.testing import plugin
from tests.kit.patience import until

SURROUNDINGS = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTEST_", "EXPIREBRIDGE_"))
}
PYTEST = [
    sys.executable, "-m", "pytest", "-p", "no:valkey", "-p", "no:cacheprovider",
    "-o", "asyncio_default_fixture_loop_scope=function",
]  # fmt: skip
OURS = ["task", "task.lazy_imports", "testing", "testing.plugin"]
"""What of this package pytest loads in each of its runs."""

HEAD = """
import os
import pytest
from expirebridge import Bridge, make_task

def work(*args):
    if args == ("fail",):
        raise ValueError("no")

pytestmark = pytest.mark.expirebridge(handlers={"mail.send": work, "orders.rate": work})
"""


def run(folder: Path, test: str, *words: str, code: int = 0, **more: str) -> str:
    """Run a test module; `more` are variables of its environment."""
    (folder / "test_it.py").write_text(HEAD + test)
    result = subprocess.run(
        [*PYTEST, *words], cwd=folder, env=SURROUNDINGS | more,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def test_it_imports_nothing_until_it_is_used() -> None:
    program = (
        "import sys, pytest, expirebridge.testing.plugin;"
        "print(*(name for name in sys.modules if name.split('.')[0] in"
        " {'expirebridge', 'redis', 'orjson', 'asyncio', 'time_machine'}))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    ours = {"expirebridge", *(f"expirebridge.{name}" for name in OURS)}
    assert {name for name in loaded if not name.startswith("asyncio")} == ours


def test_each_test_has_an_empty_database_to_which_the_program_is_led(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
@pytest.mark.parametrize("turn", [1, 2])
def test_it(expirebridge, turn):
    assert os.environ["EXPIREBRIDGE_URL"] == expirebridge.url
    assert expirebridge.made() == []
    make_task("mail.send", [turn], "1h")
    with Bridge() as bridge:
        assert bridge.count().pending == 1

def test_after_them():
    assert "EXPIREBRIDGE_URL" not in os.environ
""",
    )


def test_a_failed_expectation_shows_what_there_is_and_what_ran(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
def test_it(expirebridge):
    make_task("mail.send", ["fail"], "24h", retry=["2h"])
    make_task("mail.send", [2], "72h", id="two")
    make_task("orders.rate", [1], "24h")
    expirebridge.travel("25h")
    expirebridge.assert_made("mail.send", args=[2], due_in="24h", within="1m")
""",
        code=1,
    )
    head = "AssertionError: wanted mail.send(2) due in 1d (within 1m); none was made"
    assert f"E       {head}" in told
    lines = re.findall(r"^E         (.*)$", told, re.MULTILINE)
    assert re.fullmatch(r"mail\.send\(2\) due in 1d 2\dh, task two: due 2\dh.* too late", lines[0])
    assert "args ['fail']" in lines[1]
    assert "another function, orders.rate" in lines[2]
    assert re.search(r"^test_it\.py:\d+: AssertionError$", told, re.MULTILINE), "its own line"
    report = told[told.index(" expirebridge ---") :]
    assert "mail.send('fail') attempt 1 retry, again in 2h: ValueError: no" in report
    assert re.search(r"waits:\n  mail\.send\('fail'\) due in", report)


EXPECTATIONS = {
    "assert_made('mail.sent')": "did you mean 'mail.send'?",
    "assert_made('mail.send', count=3)": "wanted 3 mail.send(...); 2 were made",
    "assert_not_made('mail.send', args=[1])": "not wanted mail.send(1); 1 was made",
    "assert_made('mail.send', kwargs={'a': 1})": "kwargs {}",
    "assert_made('mail.send', args=[1], due_in='2h')": "due 1h too early",
}
"""What is told of each, where it fails."""


def test_an_expectation_that_fails_says_why(tmp_path: Path) -> None:
    test = """
def test_{number}(expirebridge):
    make_task("mail.send", [1], "1h")
    make_task("mail.send", [2], "2h")
    expirebridge.{expectation}
"""
    tests = [test.format(number=n, expectation=one) for n, one in enumerate(EXPECTATIONS)]
    printed = run(tmp_path, "".join(tests), code=1)
    for number, told in enumerate(EXPECTATIONS.values()):
        own = printed.partition(f" test_{number} ____")[2].partition("\n____")[0]
        assert told in own, printed


@pytest.mark.rest
def test_expectations_that_hold(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
def test_it(expirebridge):
    with pytest.raises(AssertionError, match="no task was made at all"):
        expirebridge.assert_made("mail.send")
    make_task("mail.send", [1], "1h", kwargs={"a": [1]})
    make_task("mail.send", [2], "2h", id="b")
    make_task(work, [3], "2h")
    [task] = expirebridge.assert_made("mail.send", args=(2,), due_in="119m", within="1m1s")
    assert task.id == "b"
    expirebridge.assert_made("mail.send", kwargs={"a": [1]}, count=1)
    expirebridge.assert_made(work, count=3)
    expirebridge.assert_not_made("mail.send", args=[4])
    expirebridge.bridge.cancel("b")
    expirebridge.assert_not_made("mail.send", args=[2])
    expirebridge.travel("2h")
    expirebridge.assert_made("mail.send", args=[3])
""".replace("make_task(work,", 'make_task("mail.send",'),
    )


@pytest.mark.rest
def test_a_server_that_is_gone_does_not_cost_the_report(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
def test_it(expirebridge):
    from expirebridge.testing.environment import SHARED
    SHARED.stop()
    raise RuntimeError("what matters")
""",
        code=1,
    )
    assert "RuntimeError: what matters" in told
    assert "what ran cannot be read: " in told
    assert "INTERNALERROR" not in told


@pytest.mark.rest
def test_a_run_that_is_killed_leaves_no_server_behind(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        HEAD
        + """
def test_it(expirebridge):
    print(expirebridge.url, flush=True)
    input()
"""
    )
    process = subprocess.Popen(
        [*PYTEST, "-s", "-q"], cwd=tmp_path, env=SURROUNDINGS, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    url = next(line for line in process.stdout if line.startswith("redis://")).strip()
    with redis.Redis.from_url(url) as client:
        folder = Path(client.config_get("dir")["dir"])
        assert folder.is_dir()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        until(lambda: not folder.exists(), "the end of the server")
        with pytest.raises(redis.ConnectionError):
            client.ping()


@pytest.mark.parametrize(
    ("worker", "url", "database"),
    [
        ("", "", None),
        ("gw3", "", None),
        ("", "redis://localhost/1", "redis://localhost/1"),
        ("gw3", "redis://localhost/1", "redis://localhost/4"),
        ("master", "redis://localhost/1", "redis://localhost/1"),
    ],
)
def test_each_worker_has_a_database_of_a_server_that_is_named(
    worker: str, url: str, database: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    assert plugin._url_of(url) == database


@pytest.mark.rest
def test_a_server_can_be_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nexpirebridge_url = {url}\n")
    run(tmp_path, f"def test_it(expirebridge):\n    assert expirebridge.url == '{url}'\n")


@pytest.mark.rest
def test_bridges_made_before_the_fixture_lead_to_the_database_of_the_test(
    url: str, tmp_path: Path
) -> None:
    """Those that were made with the URL of the environment, however it was read."""
    (tmp_path / "shop.py").write_text(
        """
import os
from expirebridge import AsyncBridge, Bridge

by_default, by_url = Bridge(), Bridge(os.environ["EXPIREBRIDGE_URL"])
awaited = AsyncBridge()
elsewhere = Bridge(os.environ["ELSEWHERE"])
used_before = by_default.count()
"""
    )
    run(
        tmp_path,
        """
import asyncio
import shop

@pytest.mark.parametrize("turn", [1, 2])
def test_it(expirebridge, turn):
    shop.by_default.make_task("mail.send", [1], "1h")
    shop.by_url.make_task("mail.send", [2], "1h")
    asyncio.run(make(3))
    assert len(expirebridge.made("mail.send")) == 3
    assert shop.elsewhere.count().pending == 0
    assert len(expirebridge.travel("1h")) == 3

async def make(number):
    async with shop.awaited as bridge:
        await bridge.make_task("mail.send", [number], "1h")

def test_afterwards_they_lead_where_they_did():
    with Bridge() as development:
        assert development.count().pending == 0
        shop.by_default.make_task("mail.send", id="made-after", delay="1h")
        assert development.get("made-after") is not None
""",
        EXPIREBRIDGE_URL=url,
        ELSEWHERE=url.rpartition("/")[0] + "/9",
    )

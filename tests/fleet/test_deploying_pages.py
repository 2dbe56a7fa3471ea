"""The pages on deploys: what they show is done as they show it, by processes of two codes."""

import json
import re
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expirebridge import AsyncBridge, Bridge, State, Task
from expirebridge.handlers import Registry
from expirebridge.hooks import End
from expirebridge.settings import Settings
from tests.kit.invoked import invoke, run
from tests.kit.modules import as_if_new
from tests.kit.patience import PATIENCE, until
from tests.kit.processes import ROOT, Reports, listener, until_logged
from tests.kit.shell import Shell, shell
from tests.kit.witness import Witness, listening_with

PAGES = ("deploy.md", "change-handlers.md")
PAGE = "\n".join((ROOT / "docs" / "how-to" / page).read_text() for page in PAGES)
HEAD = """
from expirebridge import handler
from tests.kit.processes import report
"""
OLD = f"""{HEAD}
def send(to): report("old")
def bill(order, colour=None): report("old")
def stays(n): report("old")
"""
NEW = f"""{HEAD}
def send(to, subject="Hello"): report("new")
def bill(order): report("new")
def digest(day): report("new")
def stays(n): report("new")
"""


def blocks(language: str, chapter: str) -> list[str]:
    """What the pages show in this language, in one of their chapters."""
    _, found, rest = PAGE.partition(f"\n## {chapter}\n")
    assert found
    text = rest.partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def write(folder: Path, source: str) -> Path:
    """A handlers' folder with this module `mail`."""
    folder.mkdir(parents=True)
    (folder / "mail.py").write_text(source)
    return folder


def shown(code: str, word: str) -> str:
    """A handlers' module of the page, whose functions report this word."""
    return HEAD + code.replace(": ...", f": report({word!r})")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write(tmp_path / "old" / "tasks", OLD)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write(tmp_path / "new" / "tasks", NEW)


@pytest.fixture
def session(url: str, tmp_path: Path) -> Iterator[Shell]:
    """A shell for the page's blocks."""
    port = url.rpartition(":")[2].partition("/")[0]
    env = {"EXPIREBRIDGE_URL": url, "REPORTS_PORT": port, "PYTHONPATH": str(ROOT)}
    with shell(tmp_path, **env) as session:
        yield session


def until_listeners(bridge: Bridge, count: int) -> None:
    until(lambda: bridge.count().listeners == count, f"{count} listeners")


def found(bridge: Bridge, id: str) -> Task:
    task = bridge.get(id)
    assert task is not None
    return task


def until_state(bridge: Bridge, id: str, state: State) -> None:
    until(lambda: found(bridge, id).state is state, f"{id}: {state}")


def make(bridge: Bridge, *calls: tuple[str, list[Any]], delay: float = 0.0) -> list[str]:
    return [bridge.make_task(f"mail.{func}", args, delay).id for func, args in calls]


@contextmanager
def deployed(url: str, folder: Path, *options: str) -> Iterator[None]:
    """A listener that is stopped in order at the end of the block."""
    with listener(url, folder, *options) as process:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def compat(root: Path, *words: str | Path, url: str) -> subprocess.CompletedProcess[str]:
    """The command, which finds none of the folders below `root` imported."""
    with as_if_new(root):
        return run("compat", *words, url=url)


def words_of(reports: Reports, ids: Iterable[str]) -> list[str]:
    """Which code ran each of these tasks, and that nothing else ran."""
    seen = {(report := reports.next()).id: report.word for _ in ids}
    return [seen[id] for id in ids]


def listed(name: str) -> str:
    """How the shell starts a listener of this code, whose process id is in the variable `NAME`."""
    return f"expirebridge listen --tasks {name}/tasks & {name.upper()}=$!"


def test_a_rolling_deploy_runs_each_task_once(
    bridge: Bridge, reports: Reports, session: Shell, old: Path, new: Path
) -> None:
    [block] = blocks("sh", "A rolling deploy")
    session.run(f'{listed("old")}; OLDER=$OLD; {listed("old")}; OLD="$OLDER $OLD"')
    until_listeners(bridge, 2)
    at = datetime.now(UTC)
    ids = [
        task.id
        for task in bridge.make_tasks(
            {"func": "mail.stays", "args": [n], "at": at + timedelta(milliseconds=10 * n)}
            for n in range(300)
        )
    ]
    first = reports.next()
    session.run(block)
    codes = session.run("for pid in $OLD; do wait $pid; echo $?; done")
    assert codes == "0\n0\n"
    until_listeners(bridge, 2)
    assert first.word == "old"
    assert set(words_of(reports, set(ids) - {first.id})) <= {"old", "new"}
    after = make(bridge, *[("stays", [n]) for n in range(20)], ("digest", [1]))
    assert set(words_of(reports, after)) == {"new"}
    assert reports.client.llen("reports") == 0
    [code] = json.loads(session.run("expirebridge handlers --fleet --json"))
    assert "mail.digest" in str(code)
    assert session.run("expirebridge check --here").startswith("ok: 2 listeners")


def test_a_rolling_deploy_stops_before_a_task_would_fail(
    bridge: Bridge, session: Shell, old: Path, new: Path
) -> None:
    [block] = blocks("sh", "A rolling deploy")
    make(bridge, ("bill", [1, "red"]), delay=60)
    assert session.exits(block) == 3
    assert bridge.count().listeners == 0


@pytest.mark.rest
@pytest.mark.parametrize("trusted", [True, False])
def test_blue_and_green(
    bridge: Bridge, reports: Reports, session: Shell, old: Path, new: Path, trusted: bool
) -> None:
    start, suspend, stop, back = blocks("sh", "Blue and green")
    shutil.copytree(new, new.parents[1] / "green" / "tasks")
    session.run(f"{listed('old')}; BLUE=$OLD")
    until_listeners(bridge, 1)
    session.run(start)
    until_listeners(bridge, 2)
    session.run(suspend)
    until(lambda: "nothing runs" in (old.parents[1] / "shell.log").read_text(), "a rest")
    unfit, *others = make(bridge, ("bill", [1, "red"]), *[("stays", [n]) for n in range(20)])
    assert set(words_of(reports, others)) == {"new"}
    # Green may have claimed it once, and left it.
    until_state(bridge, unfit, State.PENDING)
    if trusted:
        session.run(stop)
        assert session.run("wait $BLUE; echo $?") == "0\n"
        until_state(bridge, unfit, State.FAILED)
        assert "do not fit" in (found(bridge, unfit).error or "")
    else:
        session.run(back)
        assert words_of(reports, [unfit]) == ["old"]
        assert session.run("wait $GREEN; echo $?") == "0\n"
        assert words_of(reports, make(bridge, ("stays", [1]))) == ["old"]


@pytest.mark.rest
def test_a_renamed_function_runs_the_tasks_of_both_names(
    url: str, bridge: Bridge, reports: Reports, old: Path, tmp_path: Path
) -> None:
    [code] = blocks("python", "Renaming a function or a module")
    new = write(tmp_path / "new" / "tasks", shown(code, "new"))
    with deployed(url, old), deployed(url, new):
        ids = make(bridge, *[("send", [n]) for n in range(20)], *[("deliver", [1])] * 20)
        words = words_of(reports, ids)
        assert set(words[20:]) == {"new"}
        noted = {entry.what for id in ids[20:] for entry in found(bridge, id).history}
        assert not noted & {"unknown", "released"}, "the older listener leaves them in their place"
    with deployed(url, new):
        assert words_of(reports, make(bridge, ("send", [1]))) == ["new"]


def test_compat_says_when_an_alias_can_go(
    url: str, bridge: Bridge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = blocks("python", "Renaming a function or a module")
    [report] = blocks("console", "Renaming a function or a module")
    write(tmp_path / "without-alias" / "tasks", shown(re.sub("@handler.*", "", code), "new"))
    monkeypatch.chdir(tmp_path)
    bridge.make_task("mail.send", [1], "2h", id="reminder-1")
    first, _, rest = textwrap.dedent(report).partition("\n")
    words = first.removeprefix("$ expirebridge compat ").split()
    refused = compat(tmp_path, *words, url=url)
    when = re.compile(r"first due .*")
    assert (refused.returncode, when.sub("", refused.stdout)) == (3, when.sub("", rest))
    bridge.cancel("reminder-1")
    assert compat(tmp_path, *words, url=url).returncode == 0


@pytest.mark.rest
def test_a_signature_changes_in_two_deploys(
    url: str, bridge: Bridge, reports: Reports, old: Path, tmp_path: Path
) -> None:
    _, first, second = blocks("python", "Changing a signature")
    tolerant = write(tmp_path / "first" / "tasks", shown(first, "first"))
    strict = write(tmp_path / "second" / "tasks", shown(second, "second"))
    both = (("send", [1]), ("send", [1, "red"]))
    with deployed(url, tolerant):
        assert words_of(reports, make(bridge, *both)) == ["first", "first"]
    [fits, unfit] = make(bridge, *both, delay=60)
    assert compat(tmp_path, "--tasks", strict, url=url).returncode == 3
    # All the same:
    with deployed(url, strict):
        for id in (fits, unfit):
            bridge.run_now(id)
        assert words_of(reports, [fits]) == ["second"]
        until_state(bridge, unfit, State.FAILED)
    assert compat(tmp_path, "--tasks", strict, url=url).returncode == 0
    assert compat(tmp_path, "--tasks", strict, "--failed", url=url).returncode == 3
    with deployed(url, tolerant):
        invoke("failed", "retry", "--func", "mail.send", "--yes", url=url)
        assert words_of(reports, [unfit]) == ["first"]


@pytest.mark.rest
def test_a_new_parameter_with_a_default_takes_one_deploy(
    url: str, bridge: Bridge, reports: Reports, old: Path, tmp_path: Path
) -> None:
    code = blocks("python", "Changing a signature")[0]
    new = write(tmp_path / "new" / "tasks", shown(code, "new"))
    ids = make(bridge, ("send", [1]))
    subject = {"subject": "Hi"}
    with deployed(url, new):
        assert words_of(reports, ids) == ["new"]
        with deployed(url, old):
            newer = [bridge.make_task("mail.send", [1], 0, kwargs=subject).id for _ in range(20)]
            assert set(words_of(reports, newer)) == {"new"}
    with deployed(url, old):
        early = bridge.make_task("mail.send", [1], 0, kwargs=subject)
        until_state(bridge, early.id, State.FAILED)


async def test_tasks_follow_the_policy_of_the_code_that_runs_them(
    settings: Settings, async_bridge: AsyncBridge, tmp_path: Path
) -> None:
    source = f"""{HEAD}
@handler(retry=RETRY)
def send(to):
    raise ValueError
"""
    await async_bridge.make_task("mail.send", [1], 0, id="a")
    for attempts, retry in enumerate(("[]", "['0s']"), start=1):
        folder = write(tmp_path / str(attempts) / "tasks", source.replace("RETRY", retry))
        witness = Witness()
        with as_if_new(folder.parent):
            async with listening_with(Registry.load(folder), settings, witness):
                await witness.until_ended(1, End.FAILED)
        task = await async_bridge.get("a")
        assert task is not None
        assert (task.state, task.attempt) == (State.FAILED, attempts)
        await async_bridge.run_now("a")


@pytest.mark.rest
def test_going_back_loses_nothing(
    url: str, bridge: Bridge, reports: Reports, session: Shell, old: Path, new: Path
) -> None:
    [block] = blocks("sh", "Going back")
    with listener(url, new) as newer:
        unfit, unknown = make(bridge, ("send", [1, "Hi"]), ("digest", [1]), delay=60)
        named = session.run(f"{block}echo $?")
        assert "mail.send(" in named
        assert "mail.digest(" in named
        assert named.endswith("\n3\n")
        newer.send_signal(signal.SIGTSTP)
        until_logged("suspended", new)
        with deployed(url, old):
            for id in (unfit, unknown):
                bridge.run_now(id)
            assert words_of(reports, make(bridge, ("stays", [1]))) == ["old"]
            until_state(bridge, unfit, State.PENDING)
            assert found(bridge, unknown).state is State.PENDING
            newer.send_signal(signal.SIGTERM)
            assert newer.wait(PATIENCE) == 0
            until_state(bridge, unfit, State.FAILED)
            until(lambda: "no handler" in (found(bridge, unknown).error or ""), "its reason")
            assert found(bridge, unknown).state is State.PENDING
            # One listener with the newer code, for this function only.
            with deployed(url, new, "--functions", "mail.digest"):
                bridge.run_now(unknown)
                assert words_of(reports, [unknown]) == ["new"]
                assert set(words_of(reports, make(bridge, *[("stays", [1])] * 20))) == {"old"}


@pytest.mark.rest
def test_a_second_signal_takes_the_grace_time_away(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with listener(url, folder) as process:
        task = bridge.make_task("acts.hold", [], 0)
        reports.next()
        process.send_signal(signal.SIGTERM)
        until_logged("stopping", folder)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    given_back = found(bridge, task.id)
    assert (given_back.state, given_back.attempt) == (State.PENDING, 0)

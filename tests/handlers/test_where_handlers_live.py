"""Handlers inside of a package, which of them tasks may call, and their former names."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from expirebridge import Bridge, State, Task
from tests.kit.interrupts import ignoring
from tests.kit.invoked import run
from tests.kit.modules import as_if_new, put
from tests.kit.patience import PATIENCE, until
from tests.kit.processes import (
    COMMAND,
    HANDLERS,
    ROOT,
    Reports,
    launched,
    listener,
    log_of,
    until_ended,
    until_logged,
    until_subscribed,
)

SCRIPT = (str(Path(sys.executable).with_name("expirebridge")),)
"""Python does not put the working directory on its path for this one, but for `python -m`."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The root of the example project."""
    return shutil.copytree(
        ROOT / "examples" / "shop", tmp_path / "project", ignore=shutil.ignore_patterns("__pyc*")
    )


def finished(bridge: Bridge, id: str) -> Task:
    """The task, once it has finished."""

    def found() -> Task | None:
        task = bridge.get(id)
        return task if task is not None and task.state.finished else None

    return until(found, f"the end of {id}")


@pytest.fixture
def shop_is_new(tmp_path: Path) -> Iterator[None]:
    """Commands that run in this process have imported no package of another test's `shop`."""
    with as_if_new(tmp_path, "shop"):
        yield


@contextmanager
def web_part(shop: Path, url: str) -> Iterator[str]:
    """The example's web part, at this address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shop.web", "--port", "0"],
        cwd=shop,
        env=os.environ | {"EXPIREBRIDGE_URL": url, "EXPIREBRIDGE_TASKS": "shop/tasks"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_web_part_and_a_listener_share_the_modules_of_their_package(
    shop: Path, url: str, bridge: Bridge
) -> None:
    with web_part(shop, url) as address, listener(url, shop / "shop" / "tasks"):
        welcome = httpx.post(f"{address}/sign-up?name=ann").json()
        rate = httpx.post(f"{address}/order?name=ann&number=17").json()
        assert (welcome["func"], rate["func"]) == ("mail.welcome", "orders.rate")
        bridge.run_now(rate["id"])
        assert finished(bridge, welcome["id"]).result == "Dear Ann, welcome to the shop!"
        assert finished(bridge, rate["id"]).result == "Dear Ann, please rate order 17"


@pytest.mark.rest
def test_tasks_of_a_renamed_function_and_a_renamed_module_run(
    shop: Path, url: str, bridge: Bridge, client: redis.Redis
) -> None:
    made = bridge.make_task("orders.ask_for_rating", ["bea", 5], 0)
    with listener(url, shop / "shop" / "tasks", "--metrics-port", "0"):
        assert finished(bridge, made.id).result == "Dear Bea, please rate order 5"
        until_subscribed(url)
        client.set('old-1:?letters.welcome?["bea"]', "", px=50)
        task = finished(bridge, "old-1")
        [address] = re.findall(r"metrics on (\S+)", (shop / "shop" / "listeners.log").read_text())
        labels = 'function="letters.welcome",outcome="succeeded"'
        assert f"expirebridge_attempts_total{{{labels}}} 1.0" in httpx.get(address).text
    assert (task.func, task.result) == ("letters.welcome", "Dear Bea, welcome to the shop!")


@pytest.mark.parametrize(
    ("command", "app_dir"),
    [
        pytest.param(SCRIPT, [], id="script"),
        *(
            pytest.param(command, app_dir, marks=pytest.mark.rest)
            for command, app_dir in (
                (SCRIPT, ["--app-dir", "."]), (COMMAND, []), (COMMAND, ["--app-dir", "."])
            )
        ),
    ],
)  # fmt: skip
def test_each_module_s_name_is_shown(
    shop: Path, command: tuple[str, ...], app_dir: list[str]
) -> None:
    result = subprocess.run(
        [*command, "handlers", "--tasks", "shop/tasks", *app_dir, "--json"],
        cwd=shop, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    rows = json.loads(result.stdout)
    assert [row["function"] for row in rows] == ["mail.welcome", "orders.rate"]
    assert [row["module"] for row in rows] == ["shop.tasks.mail", "shop.tasks.orders"]
    assert [row["aliases"] for row in rows] == ["letters.welcome", "orders.ask_for_rating"]


def test_a_namespace_package_is_named_by_its_directory(tmp_path: Path) -> None:
    put(tmp_path, "company/shop/prices.py", "price = 17")
    put(tmp_path, "company/shop/tasks/mail.py", "from company.shop.prices import price\n"
        "from ..prices import price as same\ndef send(): ...")  # fmt: skip
    folder = tmp_path / "company/shop/tasks"
    with as_if_new(tmp_path, "shop"):
        unnamed = run("handlers", "--tasks", folder)
    assert unnamed.returncode == 1
    assert "No module named 'company'" in unnamed.stderr
    with as_if_new(tmp_path, "company"):
        named = run("handlers", "--tasks", folder, "--json", EXPIREBRIDGE_APP_DIR=str(tmp_path))
    assert [row["module"] for row in json.loads(named.stdout)] == ["company.shop.tasks.mail"]


def test_a_function_of_a_module_that_is_itself_run_has_its_usual_name(shop: Path, url: str) -> None:
    """Its module is `__main__` then."""
    put(shop, "shop/tasks/pings.py", """
        from expirebridge import make_task
        from ..customers import greeting
        def ping(): return greeting("you")
        if __name__ == "__main__":
            print(make_task(ping, [], 60).func)
        """)  # fmt: skip
    result = subprocess.run(
        [sys.executable, "-m", "shop.tasks.pings"], cwd=shop,
        env=os.environ | {"EXPIREBRIDGE_URL": url, "EXPIREBRIDGE_TASKS": "shop/tasks"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.stdout, result.stderr) == ("pings.ping\n", "")


@pytest.mark.usefixtures("shop_is_new")
def test_helpers_are_listed_apart(shop: Path) -> None:
    put(shop, "shop/tasks/shipping.py", """
        import functools
        def traced(function):
            @functools.wraps(function)
            def wrapper(*args): return function(*args)
            return wrapper
        weight = lambda order: order
        @traced
        def ship(order): ...
        class Parcel: ...
        """)  # fmt: skip
    result = run("handlers", "--tasks", shop / "shop/tasks", "--helpers", "--json")
    assert "shipping.Parcel" in result.stderr
    assert {row["function"]: row["kind"] for row in json.loads(result.stdout)} == {
        "shipping.ship": "function",
        "shipping.traced": "decorator",
        "shipping.weight": "lambda",
    }
    marked = run("handlers", "--tasks", shop / "shop/tasks", "--only-marked", "--json")
    assert marked.stderr == ""
    rows = json.loads(marked.stdout)
    assert [row["function"] for row in rows] == ["mail.welcome", "orders.rate"]


def test_a_listener_of_marked_functions_runs_no_other(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    put(folder, "marked.py", """
        from expirebridge import handler
        from tests.kit.processes import report
        @handler
        def note(): report("marked")
        class Parcel: ...
        """)  # fmt: skip
    helper = bridge.make_task("acts.note", [], 0)
    with listener(url, folder, "--only-marked") as process:
        until_logged("released acts.note", folder)
        bridge.make_task("marked.note", [], 0)
        assert reports.next().word == "marked"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    task = bridge.get(helper.id)
    assert task is not None
    assert task.state is State.PENDING
    log = (folder.parent / "listeners.log").read_text()
    assert "with 1 handler" in log
    assert "Parcel" not in log


@pytest.mark.rest
def test_a_listener_of_all_functions_names_what_is_none(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    put(folder, "marked.py", """
        from expirebridge import handler
        @handler
        def note(): ...
        class Parcel: ...
        """)  # fmt: skip
    helper = bridge.make_task("acts.note", [], 0)
    with listener(url, folder):
        assert reports.next().id == helper.id
    assert "marked.Parcel" in (folder.parent / "listeners.log").read_text()


IN_TWO_MODULES = HANDLERS.count("def ") + 1


@pytest.fixture
def two_modules(folder: Path) -> Path:
    """A folder with a module beside `acts`."""
    put(folder, "other.py", """
        from expirebridge import handler
        from tests.kit.processes import report
        @handler(aliases=["acts.speak"])
        def talk(): report("talked")
        """)  # fmt: skip
    return folder


def test_a_listener_of_some_functions_leaves_the_others(
    url: str, bridge: Bridge, two_modules: Path, reports: Reports
) -> None:
    folder = two_modules
    with listener(url, folder, "--functions", "other.*"):
        noted = bridge.make_task("acts.note", [], 0)
        until_logged("released acts.note", folder)
        bridge.make_task("acts.speak", [], 0)
        assert reports.next().word == "talked"
    left = bridge.get(noted.id)
    assert left is not None
    assert left.state is State.PENDING
    assert f"with 1 handler (of {IN_TWO_MODULES})" in log_of(folder)


@pytest.mark.rest
def test_several_patterns_name_the_functions_of_a_listener(
    url: str, bridge: Bridge, two_modules: Path, reports: Reports
) -> None:
    noted = bridge.make_task("acts.note", [], 0)
    with listener(url, two_modules, "--functions", "acts.m*, acts.note"):
        assert reports.next().id == noted.id
    assert f"with 2 handlers (of {IN_TWO_MODULES})" in log_of(two_modules)


@pytest.mark.rest
def test_a_listener_ends_with_the_process_that_restarts_it(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    """However that ends: a listener that nobody knows of would run tasks with older code."""
    with launched(url, folder, "--reload", "--grace", "0.2") as reloader:
        bridge.make_task("acts.hold", [], 0)
        held = reports.next()
        assert held.pid != reloader.pid
        with until_ended([held.pid]):
            reloader.kill()
    # It stopped in order.
    found = bridge.get(held.id)
    assert found is not None
    assert found.state is State.PENDING
    assert bridge.count().listeners == 0


@pytest.mark.rest
def test_ctrl_c_ends_a_listener_that_reloads_in_the_background(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with ExitStack() as stack:
        with ignoring():
            reloader = stack.enter_context(launched(url, folder, "--reload"))
        bridge.make_task("acts.note", [], 0)
        with until_ended([reports.next().pid]):
            reloader.send_signal(signal.SIGINT)
            assert reloader.wait(PATIENCE) == 0
    assert bridge.count().listeners == 0


def test_a_listener_restarts_when_a_module_beside_its_handlers_changes(
    url: str, client: redis.Redis, bridge: Bridge, tmp_path: Path, reports: Reports
) -> None:
    port = client.get_connection_kwargs()["port"]
    put(tmp_path, "shop/__init__.py", "")
    words = put(tmp_path, "shop/words.py", "WORD = 'one'")
    put(tmp_path, "shop/tasks/live.py", "from tests.kit.processes import report\n"
        "from ..words import WORD\ndef speak(): report(WORD)\n")  # fmt: skip
    process = subprocess.Popen(
        [*COMMAND, "listen", "--reload", "--tasks", tmp_path / "shop/tasks", "--url", url],
        env=os.environ | {"REPORTS_PORT": str(port), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        bridge.make_task("live.speak", [], 0)
        first = reports.next()
        words.write_text("WORD = 'two'")
        until(lambda: not bridge.count().listeners, "the end of the first listener")
        bridge.make_task("live.speak", [], 0)
        second = reports.next()
        assert (first.word, second.word) == ("one", "two")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


# Bad input: one line, and nothing has begun


@pytest.mark.usefixtures("shop_is_new")
@pytest.mark.parametrize(
    ("options", "code", "wrong"),
    [
        (["--app-dir", "{project}/elsewhere"], 1, "tasks is not below it"),
        (["--app-dir", "{project}/shop/tasks"], 1, "tasks is not below it"),
        (["--functions", "mial.*"], 2, "--functions mial.*: no handler matches (did you mean 'mai"),
        (["--functions", "mail.*,"], 2, "a pattern is empty"),
        (["--functions", ""], 2, "a pattern is empty"),
        (["--functions", "letters.*"], 2, "give the present ones: mail.welcome"),
    ],
)
def test_options_that_cannot_be_are_refused(
    shop: Path, url: str, bridge: Bridge, options: list[str], code: int, wrong: str
) -> None:
    words = [option.format(project=shop) for option in options]
    for command in ("listen", "handlers"):
        result = run(command, "--tasks", shop / "shop/tasks", *words, url=url)
        assert (result.returncode, result.stdout) == (code, "")
        assert result.stderr.startswith("expirebridge: ")
        assert result.stderr.count("\n") == 1
        assert wrong in result.stderr
    assert bridge.count().listeners == 0


@pytest.mark.usefixtures("shop_is_new")
@pytest.mark.parametrize(
    ("file", "source", "wrong"),
    [
        ("extra.py", "def rate(): ...\nHANDLERS = {'rate': rate}", "is a dict: it must be a list"),
        ("extra.py", "HANDLERS = ['rate']", "HANDLERS in {path}: rate is not in this module"),
        ("__init__.py", "ALIASES = {'old': 'gone'}", "no handler is in a module 'gone'"),
        ("__init__.py", "ALIASES = {'mail': 'orders', 'orders.rate': 'mail.welcome'}", "{path}"),
    ],
)
def test_modules_that_cannot_be_used_are_refused(
    shop: Path, url: str, file: str, source: str, wrong: str
) -> None:
    path = put(shop, f"shop/tasks/{file}", source)
    result = run("listen", "--tasks", shop / "shop/tasks", url=url)
    assert (result.returncode, result.stdout) == (1, "")
    assert wrong.format(path=path) in result.stderr
    assert result.stderr.count("\n") == 1

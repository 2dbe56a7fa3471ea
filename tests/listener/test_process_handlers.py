"""Which functions can run in processes, and what travels between a process and its listener."""

import functools
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge import handler
from expirebridge.errors import HandlersError, InvalidSetting, InvalidTask
from expirebridge.handlers import Handler, Kind, Registry
from expirebridge.listener.execution.outcome import shown_error
from expirebridge.listener.execution.process_pool.protocol import (
    Begun,
    Frames,
    Reply,
    encode,
    pack,
    unpack,
)
from expirebridge.settings import Settings
from expirebridge.task.policies import Busy, Discard, Retry, Snooze
from expirebridge.testing import run_handler
from tests.kit.modules import forgotten, put


@handler(process=True, timeout="30s")
def plain(value: int = 1) -> int:
    return value


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@wrapping
@handler(process=True)
def decorated() -> None: ...


@handler(process=True)
async def asynchronous() -> None: ...


@handler(process=True)
def generator() -> Any:
    yield 1


nameless = handler(process=True)(lambda: None)


def inner() -> Callable[..., Any]:
    @handler(process=True)
    def nested() -> None: ...

    return nested


def test_the_kind_says_where_a_handler_is_called() -> None:
    assert Handler.of("mail.send", plain).kind is Kind.PROCESS
    assert Handler.of("mail.send", decorated).kind is Kind.PROCESS
    assert Handler.of("mail.send", wrapping).kind is Kind.THREAD


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (asynchronous, "process=True: it is async"),
        (generator, "is a generator function"),
        (nameless, "process=True: it is a lambda"),
        (inner(), "process=True: it is defined inside of another function"),
    ],
)
def test_what_cannot_run_in_a_process_is_refused_with_its_place(
    function: Callable[..., Any], fault: str
) -> None:
    with pytest.raises(HandlersError) as refused:
        Handler.of("mail.send", function)
    assert fault in str(refused.value)
    assert f"mail.send ({__file__}, line " in str(refused.value)


def test_a_listener_refuses_it_at_the_start(tmp_path: Path) -> None:
    put(
        tmp_path / "apart",
        "mail.py",
        "from expirebridge import handler\n@handler(process=True)\nasync def send(): ...\n",
    )
    with forgotten(tmp_path), pytest.raises(HandlersError, match=r"mail\.send .*line 2.*async"):
        Registry.load(tmp_path / "apart")


def test_process_is_true_or_false() -> None:
    with pytest.raises(InvalidTask, match="process=2: True or False"):
        handler(process=2)  # type: ignore[call-overload]


def test_the_testing_kit_runs_it_in_the_test() -> None:
    assert run_handler(plain, [3]).result == 3


# Settings


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512m", 512 * 2**20),
        ("2G", 2**31),
        ("100000k", 102_400_000),
        ("134217728", 2**27),
        ("1GiB", 2**30),
        ("64MB", 2**26),
    ],
)
def test_a_memory_limit_has_a_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.read(process_memory=text).process_memory == size
    monkeypatch.setenv("EXPIREBRIDGE_PROCESS_MEMORY", text)
    assert Settings.read().process_memory == size


@pytest.mark.parametrize("text", ["", "much", "1.5g", "-1g", "63m", "10", "9999999999999g"])
def test_what_is_no_memory_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="process_memory="):
        Settings.read(process_memory=text)


@pytest.mark.parametrize("value", ["0", "-1", "two", 0, 1.5])
def test_what_is_no_number_of_processes_is_refused(value: object) -> None:
    with pytest.raises(InvalidSetting, match="processes="):
        Settings.read(processes=value)


def test_the_number_of_processes_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_PROCESSES", "3")
    assert Settings.read().processes == 3


# What a handler raised


class Own(Exception):
    """It can be pickled, and not be made again."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Impatient(Retry):
    def __init__(self) -> None:
        super().__init__("5s", "in a hurry")


class Lost(Retry):
    def __init__(self) -> None:
        self.after = None  # type: ignore[assignment]


def test_an_error_arrives_with_its_class_and_its_traceback() -> None:
    def sell() -> None:
        raise KeyError("the shop")

    with pytest.raises(KeyError) as raised:
        sell()
    shown = shown_error(raised.value)
    arrived = unpack(pack(raised.value))
    assert type(arrived) is KeyError
    assert arrived.args == ("the shop",)
    assert shown_error(arrived) == shown
    assert "test_an_error_arrives" in shown


def test_an_error_that_cannot_be_made_again_keeps_its_name_and_words() -> None:
    arrived = unpack(pack(Own(1, 2)))
    assert type(arrived).__name__ == "Own"
    assert str(arrived) == "1 and 2"
    assert shown_error(arrived).endswith("Own: 1 and 2")


def test_answers_arrive_as_they_were_given() -> None:
    until = datetime(2031, 5, 1, tzinfo=UTC)
    snooze = unpack(pack(Snooze("1m", times=3, until=until)))
    assert isinstance(snooze, Snooze)
    assert (snooze.after, snooze.times, snooze.until) == (60, 3, until)
    assert str(snooze) == "snoozed for 60 s"
    retry = unpack(pack(Impatient()))
    assert isinstance(retry, Retry)
    assert (retry.after, str(retry)) == (5, "in a hurry")
    busy = unpack(pack(Busy("1m", per="account")))
    assert isinstance(busy, Busy)
    assert (busy.after, busy.per, str(busy)) == (60, "account", "busy for 60 s")
    discard = unpack(pack(Discard("never")))
    assert (type(discard), str(discard)) == (Discard, "never")
    lost = unpack(pack(Lost()))
    assert isinstance(lost, Discard)
    assert str(lost).startswith("its Lost says no delay")


@pytest.mark.parametrize(
    "error",
    [Retry("2m", "why"), Snooze("2m", "why", times=2), Busy(1, "429", per="a"), Discard("no")],
)
def test_answers_can_be_pickled(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


# Frames


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(1, 50), min_size=1))
def test_frames_arrive_whole_in_pieces_of_any_size(results: list[bytes], sizes: list[int]) -> None:
    sent = [frame for result in results for frame in (Begun(), Reply(result=result))]
    data = b"".join(map(encode, sent))
    frames, place = Frames(), 0
    arrived: list[object] = []
    while data:
        size = sizes[place % len(sizes)]
        place += 1
        arrived += frames.feed(data[:size])
        data = data[size:]
    assert arrived == sent


def test_a_process_imports_no_client_of_a_server_or_database() -> None:
    asks = (
        "import sys\n"
        "import expirebridge.listener.execution.process_pool.child_main\n"
        "assert not {'redis', 'sqlalchemy'} & set(sys.modules)\n"
        "prefix = 'expirebridge.listener.execution.'\n"
        "print(*sorted(name[len(prefix):] for name in sys.modules if name.startswith(prefix)))"
    )
    told = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [
        "exceptions", "fork_guard", "outcome", "process_pool", "process_pool.child_main",
        "process_pool.protocol", "thread_pool",
    ]  # fmt: skip

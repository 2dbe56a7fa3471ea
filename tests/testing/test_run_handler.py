"""One handler alone is called as a listener would."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expirebridge import (
    Budget,
    Busy,
    Discard,
    HandlersError,
    InvalidTask,
    Limit,
    Rate,
    Retry,
    Snooze,
    current_task,
    handler,
)
from expirebridge.hooks import End
from expirebridge.testing import TravelError, arun_handler, run_handler
from tests.kit.patience import PATIENCE


def tell(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return current_task().id


@handler(retry=[60], timeout=0.02)
async def be_short(seconds: float) -> str:
    return await wait(seconds)


def test_arguments_go_through_json() -> None:
    ran = run_handler(tell, [1, {"a": [2]}], {"b": None})
    assert (ran.end, ran.result) == (End.SUCCEEDED, [[1, {"a": [2]}], {"b": None}])
    assert ran.func == "test_run_handler.tell"
    with pytest.raises(InvalidTask, match="isoformat"):
        run_handler(tell, [datetime.now(UTC)])


def test_a_typed_handler_receives_what_it_is_given() -> None:
    @handler(typed=True)
    def look(at: datetime) -> list[Any]:
        return [at.isoformat(), current_task().args]

    due = datetime(2030, 1, 1, tzinfo=UTC)
    assert run_handler(look, [due]).result == [due.isoformat(), ["2030-01-01T00:00:00Z"]]
    with pytest.raises(InvalidTask, match=r"^look: at is of type str, which does not fit"):
        run_handler(look, ["tomorrow"])


def test_a_handler_knows_its_task() -> None:
    def look() -> list[Any]:
        task = current_task()
        return [task.id, task.attempt, task.due.isoformat(), task.func]

    due = datetime(2030, 1, 1, tzinfo=UTC)
    ran = run_handler(look, attempt=3, id="a", due=due)
    assert ran.result == ["a", 3, due.isoformat(), "test_run_handler.look"]


def test_its_answers_are_results() -> None:
    def answer(word: str) -> None:
        raise Retry(after="10m") if word == "retry" else Discard("no such order")

    retry, discard = run_handler(answer, ["retry"]), run_handler(answer, ["discard"])
    assert (retry.end, retry.delay) == (End.RETRY, 600)
    assert (discard.end, discard.delay, discard.reason) == (End.FAILED, None, "no such order")


def test_a_snooze_waits_and_is_granted_no_longer_than_it_says() -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)

    @handler(retry=[30])
    def snooze() -> None:
        raise Snooze(after="10m", until=until)

    ran = run_handler(snooze, due=until - timedelta(hours=1))
    assert (ran.end, ran.delay) == (End.SNOOZED, 600)
    ran = run_handler(snooze, due=until - timedelta(minutes=1))
    assert ran.end is End.SNOOZED
    assert ran.delay == pytest.approx(60, abs=1)
    ran = run_handler(snooze, due=until)
    assert (ran.end, ran.delay) == (End.RETRY, 30)


def test_busy_waits_if_the_handler_has_that_rate_and_fails_if_not() -> None:
    @handler(rate=Rate(5, "1s", per="account"), limit=Limit(1), retry=[30])
    def send(account: str, per: str | None) -> None:
        raise Busy("10s", per=per)

    ran = run_handler(send, ["a", "account"])
    assert (ran.end, ran.delay, ran.reason) == (End.SNOOZED, 10, "busy for 10 s")
    for per, which in ((None, "without per"), ("to", "with per='to'")):
        ran = run_handler(send, ["a", per])
        assert (ran.end, ran.delay) == (End.RETRY, 30)
        assert ran.reason.startswith(
            f"it raised Busy, but its handler has no rate {which}: add one"
        )


def test_it_tells_what_was_spent() -> None:
    @handler(rate=[Budget(100, "1m", of="tokens"), Budget(5, "1d", of="cents")])
    def ask(tokens: int, cents: int, *, fails: bool = False) -> None:
        current_task().spend(30, of="tokens")
        if fails:
            raise OSError("gone")
        current_task().spend(1, of="cents")

    assert run_handler(ask, [7, 1]).spent == {"tokens": 30, "cents": 1}
    assert run_handler(ask, [7, 1], {"fails": True}, raising=False).spent == {"tokens": 30}
    assert run_handler(current_task).spent == {}


def test_an_error_is_raised_or_a_result_by_the_retry_policy() -> None:
    @handler(retry=[30, 60])
    def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        run_handler(fail)
    delays = [run_handler(fail, attempt=n, raising=False).delay for n in (1, 2, 3)]
    assert delays == [30, 60, None]
    ran = run_handler(fail, attempt=3, raising=False)
    assert (ran.end, type(ran.error)) == (End.FAILED, OSError)
    assert "OSError: gone" in str(ran)


def test_arguments_that_do_not_fit_are_a_failure_as_in_life() -> None:
    ran = run_handler(wait, [1, 2])
    assert ran.end is End.FAILED
    assert "its arguments do not fit" in ran.reason


def test_a_timeout_is_a_result() -> None:
    ran = run_handler(be_short, [60])
    assert (ran.end, ran.delay, ran.reason) == (End.RETRY, 60, "timed out after 0.02 s")

    @handler(timeout=PATIENCE)
    async def be_long() -> str:
        return current_task().id

    assert run_handler(be_long, id="quick").result == "quick"


async def test_in_an_async_test_it_is_awaited() -> None:
    assert (await arun_handler(wait, [0], id="b")).result == "b"
    with pytest.raises(TravelError, match="await arun_handler"):
        run_handler(wait, [0])


def test_a_handler_is_found_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "named_tasks"
    folder.mkdir()
    (folder / "mail.py").write_text("def send(user):\n    return f'to {user}'\n")
    assert run_handler("mail.send", ["ann"], tasks=folder).result == "to ann"
    with pytest.raises(InvalidTask, match=r"no such handler .*did you mean 'mail.send'\?"):
        run_handler("mail.sned", tasks=folder)
    with pytest.raises(HandlersError, match="does not exist"):
        run_handler("mail.send", tasks=tmp_path / "nowhere")

"""An attempt ends with an outcome, whatever the handler and the record are like."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from expirebridge.handlers import Handler
from expirebridge.hooks import End
from expirebridge.listener.attempt import Attempt, Outcome
from expirebridge.retry import Exponential
from expirebridge.store.views import ClaimedTask


async def outcome_of(
    function: Callable[..., Any], *, retry: bytes | None = None, attempt: int = 1
) -> Outcome:
    claimed = ClaimedTask(
        id="a", token="t", func="mail.send", args=b"[]", key=b"a:?mail.send?[]", due=0,
        attempt=attempt, made=None, tags=(), retry=retry, timeout=None, lapses=0,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as threads:
        return await Attempt(
            claimed,
            Handler.of("mail.send", function),
            hint="",
            timeout=5,
            threads=threads,
            on_overtime=lambda _: None,
        ).run()


def fail() -> None:
    raise RuntimeError("the shop is closed")


async def test_a_plain_wrapper_around_an_async_handler_does_not_succeed_without_running_it() -> (
    None
):
    ran = []

    async def send() -> None:
        ran.append(True)

    @functools.wraps(send)
    def logged() -> Any:
        return send()

    outcome = await outcome_of(logged)
    # To run the coroutine is best; to fail is honest.
    assert ran or outcome.end is not End.SUCCEEDED


@pytest.mark.parametrize("retry", [b"", b"[null]", b"[[1]]", b'{"first":-1}', b'{"longest":null}'])
async def test_a_record_with_a_policy_that_cannot_be_read_fails_its_task(retry: bytes) -> None:
    outcome = await outcome_of(fail, retry=retry)
    assert outcome.end is End.FAILED


async def test_a_failure_under_a_steep_policy_is_retried() -> None:
    steep = Exponential(factor=1e10, attempts=1000).encode()
    outcome = await outcome_of(fail, retry=steep, attempt=40)
    assert outcome.end is End.RETRY
    assert outcome.settlement.delay <= 3600

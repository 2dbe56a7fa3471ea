"""How producers repeat a command that failed."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.retry import Retry

from expirebridge.store.tls import is_plain_text

T = TypeVar("T")

LAST_ATTEMPT = 5.0
"""Seconds after which a producer begins no other attempt."""


class TimelyRetry(Retry):
    """Does not repeat what cannot help, nor what would come too late."""

    def call_with_retry(
        self, do: Callable[[], T], fail: Callable[..., Any], *options: Any, **named: Any
    ) -> T:
        """Call `do` until it succeeds, or there is no more to be hoped for."""
        helps = _helps_until(monotonic() + LAST_ATTEMPT)

        def fail_for_good(error: Exception, *count: int) -> None:
            fail(error, *count)
            if not helps(error):
                raise error

        return super().call_with_retry(do, fail_for_good, *options, **named)


class AsyncTimelyRetry(AsyncRetry):
    """The same, to be awaited."""

    async def call_with_retry(
        self, do: Callable[[], Awaitable[T]], fail: Callable[..., Any], *options: Any, **named: Any
    ) -> T:
        """Await `do` until it succeeds, or there is no more to be hoped for."""
        helps = _helps_until(monotonic() + LAST_ATTEMPT)

        async def fail_for_good(error: Exception, *count: int) -> None:
            await fail(error, *count)
            if not helps(error):
                raise error

        return await super().call_with_retry(do, fail_for_good, *options, **named)


def _helps_until(end: float) -> Callable[[Exception], bool]:
    def helps(error: Exception) -> bool:
        is_refusal = isinstance(error, redis.AuthenticationError) or is_plain_text(error)
        return monotonic() < end and not is_refusal

    return helps

"""The sentinels of a primary: what each of them answers, and what they agree on."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import redis
from redis import exceptions

from expirebridge.connection.urls import Address, SentinelUrl

NO_SENTINEL = "is not a sentinel"
"""The fault of an address at which something else answers."""


class Answer(NamedTuple):
    """What one sentinel answered when it was asked for the primary."""

    sentinel: Address
    primary: Address | None
    """Where the primary is; None if it did not say."""
    fault: str = ""
    """Why it did not say."""
    is_final: bool = False
    """Whether to ask it again cannot help: it is no sentinel, or does not know the name."""

    def __str__(self) -> str:
        return f"{self.sentinel} {f'names {self.primary}' if self.primary else self.fault}"


class Sentinels:
    """Asks the sentinels of a URL, one after the other. Not safe for threads.

    One that did not answer is asked last from then on: while the others agree, it costs nothing.
    """

    def __init__(self, url: SentinelUrl, clients: Sequence[redis.Redis]) -> None:
        self.name = url.name
        self._sentinels = list(zip(url.sentinels, clients, strict=True))

    def __len__(self) -> int:
        return len(self._sentinels)

    def answers(self) -> Iterator[Answer]:
        """Ask each of them for the primary, when its turn comes."""
        for sentinel in list(self._sentinels):
            answer = self._ask(*sentinel)
            if answer.primary is None:
                self._sentinels.remove(sentinel)
                self._sentinels.append(sentinel)
            yield answer

    def _ask(self, sentinel: Address, client: redis.Redis) -> Answer:
        try:
            found = _master_of(client, self.name)
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            refused = isinstance(error, exceptions.AuthenticationError)
            return Answer(sentinel, None, _silence(error), is_final=refused)
        except exceptions.RedisError as error:
            return Answer(sentinel, None, _refusal(error), is_final=True)
        if found is None:
            known = _names_known_to(client)
            return Answer(sentinel, None, f"does not know {self.name!r}{known}", is_final=True)
        return Answer(sentinel, Address(*found))


def leader_of(answers: Iterable[Answer]) -> tuple[Address | None, int]:
    """The address that most of them name, and how many do; None if two are named equally often."""
    votes = Counter(answer.primary for answer in answers if answer.primary)
    ranked: list[tuple[Address | None, int]] = [*votes.most_common(2), (None, 0), (None, 0)]
    (leader, most), (_, next_most) = ranked[:2]
    return (leader, most) if most > next_most else (None, most)


def _master_of(client: redis.Redis, name: str) -> tuple[str, int] | None:
    command = "SENTINEL GET-MASTER-ADDR-BY-NAME"
    found: tuple[str, int] | None = client.execute_command(command, name)  # type: ignore[no-untyped-call]
    return found


def _names_known_to(client: redis.Redis) -> str:
    """The names that a sentinel does know, as far as it may say them."""
    try:
        found: Any = client.execute_command("SENTINEL MASTERS")  # type: ignore[no-untyped-call]
    except exceptions.RedisError:
        return ""
    return f", but {', '.join(map(repr, sorted(found)))}" if found else ", nor any other name"


def _silence(error: Exception) -> str:
    if isinstance(error, exceptions.AuthenticationError):
        return _refusal(error)
    return f"does not answer: {error}"


def _refusal(error: Exception) -> str:
    if "unknown command" in str(error):
        return NO_SENTINEL
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return f"refuses the login: {error} (it is in ?sentinel_username= and &sentinel_password=)"
    return f"answers: {error}"

"""The provider never refuses, and users get what they have paid for: days in a few seconds."""

import threading
from collections import Counter
from collections.abc import Iterator

import provider
import pytest
import questions

from expirebridge import Bridge
from expirebridge.testing import Clock

USERS = ["ann", "bob", "cecilia", "dan", "elizabeth", "friederike"]


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[provider.Provider]:
    """The provider, which serves where the handler asks."""
    ours = provider.Provider()
    with provider.serve(ours, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("LLM_URL", f"http://127.0.0.1:{server.server_port}")
        yield ours
        server.shutdown()


@pytest.mark.expirebridge(python_clock=True)  # the provider looks at it
def test_the_provider_never_refuses(expirebridge: Clock, ours: provider.Provider) -> None:
    with Bridge() as bridge:
        for key in ("main", "other"):
            questions.ask_for(bridge, key, [f"{user}-{key}" for user in USERS], 8)
    expirebridge.travel("10m")
    assert ours.refused == 0
    # Five for each user, and the others in the next days.
    assert len(ours.answered) == 2 * len(USERS) * 5
    expirebridge.travel("1d")
    assert (ours.refused, len(ours.answered)) == (0, 2 * len(USERS) * 8)


@pytest.mark.expirebridge(python_clock=True)
def test_what_is_asked_is_used(expirebridge: Clock, ours: provider.Provider) -> None:
    with Bridge() as bridge:
        questions.ask_for(bridge, "main", map(str, range(100)), 5)
    expirebridge.travel("10m")
    assert ours.refused == 0
    of_minute = Counter[int]()
    for one in ours.answered:
        of_minute[int((one.at - ours.answered[0].at) // 60)] += one.tokens
    assert all(13_000 <= of_minute[minute] <= 20_000 for minute in range(9)), of_minute


def test_a_provider_without_these_limits_would_refuse(ours: provider.Provider) -> None:
    assert all(ours.answer("main", "word " * 900, 400) is not None for _ in range(20))
    assert ours.answer("main", "word " * 900, 400) is None
    assert ours.answer("other", "word", 400) is not None

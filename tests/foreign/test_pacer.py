"""How a scan keeps to its share of the server's core."""

from collections.abc import Iterable

import pytest

from expirebridge.listener.server.scanner import Pacer


def pauses_after(steps: Iterable[float], share: float, patch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of a scan whose steps take so many seconds each."""
    now, pauses = 0.0, list[float]()

    async def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)

    async def scan() -> None:
        nonlocal now
        pacer = Pacer(share)
        for took in steps:
            now += took
            await pacer.pause()

    with patch.context() as patched:
        patched.setattr("time.monotonic", lambda: now)
        patched.setattr("asyncio.sleep", pause)
        runner = scan()
        with pytest.raises(StopIteration):
            runner.send(None)
    return pauses


def test_a_tenth_of_a_core_is_nine_times_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pauses_after([0.5, 0.5], 0.1, monkeypatch) == pytest.approx([4.5, 4.5])


def test_what_a_step_waited_for_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that is busy reads a reply late."""
    assert pauses_after([1, 5, 20, 2], 0.5, monkeypatch) == pytest.approx([1, 1, 1, 1])


def test_a_server_that_becomes_slower_is_paused_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pauses_after([1, 3, 3, 3, 3, 3], 0.5, monkeypatch)[-1] == pytest.approx(3)

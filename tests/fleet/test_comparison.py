"""Tasks against a registry, one by one: verdicts, groups, and memory that does not grow."""

import functools
from typing import Any

import pytest

from expirebridge.fleet import compatibility
from expirebridge.fleet.compatibility import AlikeTasks, Arguments, Comparison, Verdict
from expirebridge.task.calls.inspection import StoredCall
from tests.kit.cases import each
from tests.kit.witness import registry_of


def send(to: int, subject: str = "hi", *, urgent: bool = False) -> None: ...


def gather(*items: int, **options: int) -> None: ...


@functools.wraps(send)
def wrapped(*args: Any, **kwargs: Any) -> None:
    return send(*args, **kwargs)


def unreadable() -> None: ...


unreadable.__signature__ = 42  # type: ignore[attr-defined]


def call(
    func: str | None = "test.send",
    args: bytes = b"[1]",
    *,
    id: str = "a",
    due: int | None = 1000,
    on_signal: str | None = None,
) -> StoredCall:
    return StoredCall(id, func, args, due, on_signal)


def compared(*calls: StoredCall) -> Comparison:
    found = Comparison(
        registry_of(send=send, gather=gather, wrapped=wrapped, unreadable=unreadable)
    )
    for one in calls:
        found.add(one)
    return found


@each(
    ("func", "args", "verdict", "reason"),
    [
        ("test.send", b"[1]", Verdict.FITS, ""),
        ("test.send", b'{"*":[1],"urgent":true}', Verdict.FITS, ""),
        ("test.send", b'{"to":1,"subject":"x"}', Verdict.FITS, ""),
        ("test.send", b'["not", "the", "right types"]', Verdict.ARGUMENTS_DO_NOT_FIT,
         "test.send(to, subject=..., *, urgent=...): too many positional arguments"),
        ("test.send", b"[]", Verdict.ARGUMENTS_DO_NOT_FIT,
         "test.send(to, subject=..., *, urgent=...): missing a required argument: 'to'"),
        ("test.send", b'{"to":1,"cc":2}', Verdict.ARGUMENTS_DO_NOT_FIT,
         "test.send(to, subject=..., *, urgent=...): got an unexpected keyword argument 'cc'"),
        ("test.wrapped", b"[1,2,3]", Verdict.ARGUMENTS_DO_NOT_FIT,
         "test.wrapped(to, subject=..., *, urgent=...): too many positional arguments"),
        ("test.gather", b'{"*":[1,2,3],"a b":1}', Verdict.FITS, ""),
        ("test.unreadable", b"[1,2,3]", Verdict.UNCHECKED, ""),
        ("test.sned", b"[1]", Verdict.UNKNOWN_FUNCTION,
         "no handler has this name (did you mean 'test.send'?)"),
        ("os.system", b"[1]", Verdict.UNKNOWN_FUNCTION, "no handler has this name"),
        ("", b"", Verdict.UNKNOWN_FUNCTION, "no handler has this name"),
        ("test.send", b"[1", Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"),
        ("test.send", b"1", Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"),
        ("test.send", b"@", Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"),
        ("test.send", b"[\xff]", Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"),
        ("test.send", b"[" * 9999, Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"),
        ("test.send", b'{"*":1}', Verdict.ARGUMENTS_UNREADABLE, "its arguments cannot be read"),
        (None, b"", Verdict.RECORD_UNREADABLE, "its record cannot be read"),
    ],
)  # fmt: skip
def test_a_task_has_a_verdict_and_its_reason(
    func: str | None, args: bytes, verdict: Verdict, reason: str
) -> None:
    found = compared(call(func, args))
    [group] = found.groups()
    assert (group.verdict, group.reason, group.func) == (verdict, reason, func)
    fails = verdict not in {Verdict.FITS, Verdict.UNCHECKED}
    assert (found.compared, found.failing) == (1, int(fails))


SEALED = b"sealed:key:AAAA"


@each(
    ("func", "on_signal", "args", "verdict", "reason"),
    [
        ("test.send", "test.gather", b"[1]", Verdict.FITS, ""),
        ("test.gather", "test.send", b"[1,2]", Verdict.FITS, ""),
        ("test.gather", "test.send", b"[]", Verdict.ARGUMENTS_DO_NOT_FIT,
         "on a signal: test.send(to, subject=..., *, urgent=...): "
         "missing a required argument: 'to'"),
        ("test.gather", "test.sned", b"[]", Verdict.UNKNOWN_FUNCTION,
         "on a signal: test.sned: no handler has this name (did you mean 'test.send'?)"),
        ("test.send", "test.gather", b"[]", Verdict.ARGUMENTS_DO_NOT_FIT,
         "test.send(to, subject=..., *, urgent=...): missing a required argument: 'to'"),
        ("test.sned", "a.b", b"[]", Verdict.UNKNOWN_FUNCTION,
         "no handler has this name (did you mean 'test.send'?)"),
        ("test.send", "test.unreadable", b"[1]", Verdict.UNCHECKED, ""),
        ("test.unreadable", "test.send", b"[1]", Verdict.UNCHECKED, ""),
        ("test.unreadable", "test.send", b"[]", Verdict.ARGUMENTS_DO_NOT_FIT,
         "on a signal: test.send(to, subject=..., *, urgent=...): "
         "missing a required argument: 'to'"),
        ("test.send", "a.b", SEALED, Verdict.UNKNOWN_FUNCTION,
         "on a signal: a.b: no handler has this name"),
        ("test.send", "test.gather", SEALED, Verdict.UNCHECKED, ""),
    ],
)  # fmt: skip
def test_of_a_task_that_waits_for_a_signal_both_functions_count(
    func: str, on_signal: str, args: bytes, verdict: Verdict, reason: str
) -> None:
    found = compared(call(func, args, on_signal=on_signal))
    [group] = found.groups()
    assert (group.verdict, group.reason) == (verdict, reason)
    assert (group.func, group.on_signal) == (func, on_signal)
    assert (found.compared, found.failing) == (1, int(verdict.fails))


def test_tasks_are_not_alike_if_signals_run_others() -> None:
    found = compared(call(), call(on_signal="test.gather"), call(on_signal="test.wrapped"))
    assert [group.on_signal for group in found.groups()] == [None, "test.gather", "test.wrapped"]


def test_alike_tasks_are_one_group_with_its_first_due_time_and_examples() -> None:
    found = compared(
        call(id="a", args=b'{"*":[1],"urgent":true,"subject":"x"}', due=2000),
        call(id="b", args=b'{"subject":"y","*":[2],"urgent":false}', due=1000),
        call(id="c", args=b'{"*":[3],"urgent":1,"subject":2}', due=None),
        call(id="d", args=b'{"*":[4],"urgent":1,"subject":2}', due=3000),
    )
    assert found.groups() == [
        AlikeTasks(
            verdict=Verdict.FITS, func="test.send", arguments=Arguments(1, ("subject", "urgent")),
            reason="", count=4, first_due=1000, ids=["a", "b", "c"],
        )
    ]  # fmt: skip


def test_what_fails_comes_first_and_then_what_is_due_sooner() -> None:
    found = compared(
        call(id="fits", due=1),
        call("a.b", id="paused", due=None),
        call("a.c", id="later", due=300),
        call("a.d", id="soon", due=200),
    )
    assert [group.ids for group in found.groups()] == [["soon"], ["later"], ["paused"], ["fits"]]


def test_blind_spots_name_functions_whose_tasks_may_fail_all_the_same() -> None:
    found = compared(
        call("test.gather"), call("test.gather", b"[]"), call("test.wrapped"), call(),
        call("test.wrapped", b"[]"), call("test.unreadable"),
    )  # fmt: skip
    assert [(spot.functions, spot.count) for spot in found.blind_spots()] == [
        (["test.gather"], 2), (["test.wrapped"], 1), (["test.unreadable"], 1),
    ]  # fmt: skip
    assert compared(call()).blind_spots() == []


def test_a_task_with_two_functions_is_counted_once_in_a_blind_spot() -> None:
    found = compared(
        call("test.wrapped", on_signal="test.unreadable"),
        call("test.unreadable", on_signal="test.wrapped"),
        call("test.send", SEALED, on_signal="test.wrapped"),
    )
    assert [(spot.functions, spot.count) for spot in found.blind_spots()] == [
        (["test.wrapped"], 3),
        (["test.unreadable"], 2),
        (["test.send", "test.wrapped"], 1),
    ]


def test_the_nearest_name_is_looked_for_so_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "SUGGESTIONS", 2)
    found = compared(*(call(f"test.sen{n}", due=n) for n in range(3)))
    assert ["test.send" in group.reason for group in found.groups()] == [True, True, False]


LONG = "x" * 1000


@pytest.mark.parametrize(
    ("func", "args", "summed_as", "verdict"),
    [
        ("test.gather", '{"%d-LONG": 1}', "test.gather", Verdict.FITS),
        ("test.send", '{"%d-LONG": 1}', "test.send", Verdict.ARGUMENTS_DO_NOT_FIT),
        ("m.f%d_LONG", "[]", None, Verdict.UNKNOWN_FUNCTION),
    ],
)
def test_many_groups_are_summed_up_and_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch, func: str, args: str, summed_as: str | None, verdict: Verdict
) -> None:
    def numbered(text: str, number: int) -> str:
        return text.replace("%d", str(number)).replace("LONG", LONG)

    monkeypatch.setattr(compatibility, "MAX_CHARACTERS", 10_000)
    calls = [
        call(numbered(func, n), numbered(args, n).encode(), id=str(n), due=n) for n in range(100)
    ]
    found = compared(*calls)
    assert found.compared == 100
    groups = found.groups()
    assert len(groups) == 7
    [summed] = [group for group in groups if group.count > 1]
    assert (summed.func, summed.verdict, summed.count) == (summed_as, verdict, 94)
    assert (summed.first_due, summed.ids, summed.arguments) == (6, ["6", "7", "8"], None)
    fit = 100 if verdict is Verdict.FITS else 0
    assert found.failing == 100 - fit
    assert sum(spot.count for spot in found.blind_spots()) == fit


def test_names_of_functions_of_signals_are_summed_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "MAX_CHARACTERS", 10_000)
    found = compared(*(call(id=str(n), on_signal=f"m.f{n}_{LONG}") for n in range(100)))
    assert (found.compared, found.failing) == (100, 100)
    [summed] = [group for group in found.groups() if group.count > 1]
    assert (summed.func, summed.on_signal, summed.verdict, summed.count) == (
        "test.send", None, Verdict.UNKNOWN_FUNCTION, 94
    )  # fmt: skip

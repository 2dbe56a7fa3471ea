"""A task's history is in the order in which things happened, within a millisecond, too."""

from expirebridge import State
from expirebridge.store.task_records import history_of

AT = 1_795_000_000_123


def told(*lines: str, state: State = State.RUNNING) -> list[str]:
    history = "".join(f"{line}\n" for line in lines).encode()
    record = {"made": b"1794999999", "attempt": b"1", "history": history}
    record |= {"started": b"%d" % AT, "ended": b"%d" % AT}
    return [entry.what for entry in history_of(record, state)]


def test_what_moves_a_task_in_the_millisecond_of_its_start_came_after_it_if_it_ran() -> None:
    beats = f"{AT} beat - {AT + 1000} 3"
    assert told(beats) == ["created", "started", "beat"]
    for before in (f"{AT} run_now {AT + 9} {AT} 1", f"{AT} resume - {AT} 1"):
        assert told(before, beats) == ["created", before.split()[1], "started", "beat"]


def test_an_end_is_the_last_of_its_millisecond() -> None:
    move = f"{AT} reschedule {AT + 9} {AT} 1"
    assert told(move, state=State.SUCCEEDED) == ["created", "reschedule", "succeeded"]
    later = f"{AT + 1} reschedule - {AT + 9} 1"
    assert told(later) == ["created", "started", "reschedule"]

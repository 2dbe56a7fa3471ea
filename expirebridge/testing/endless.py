"""Says which task goes on for ever."""

from collections import Counter
from collections.abc import Sequence

from expirebridge.testing.attempt import Ran, shown
from expirebridge.testing.errors import NeverIdle

MOST_SHOWN = 3


def never_idle(done: Sequence[Ran], limit: int) -> NeverIdle:
    """The error after so many attempts, with those that ran most often."""
    counts = Counter(ran.func for ran in done)
    last = {ran.func: ran for ran in done}
    lines = [f"after {limit} attempts more were due, so this may go on for ever. Most often ran:"]
    for func, count in counts.most_common(MOST_SHOWN):
        ran = last[func]
        lines.append(
            f"  {func}, {count} times; the last was {shown(ran.task)}, task {ran.task.id}, at "
            f"{ran.at:%Y-%m-%d %H:%M:%S}, which {_ended(ran)}"
        )
    lines.append(
        "Travel for a time instead, such as travel('3d'), or allow more attempts: limit=10_000"
    )
    return NeverIdle("\n".join(lines))


def _ended(ran: Ran) -> str:
    return str(ran.end) if ran.delay is None else f"ended as {ran.end}, to run again"

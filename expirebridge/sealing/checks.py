"""Checks whether keys and codec are there, which tasks need that are sealed or encoded."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from expirebridge.checks.finding import Check, Finding, Occasion, first_of, if_any, ok, warning
from expirebridge.sealing.calls import record_page
from expirebridge.settings import Settings
from expirebridge.task.calls import inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.pages import Pages
from expirebridge.task.key_ring import KeyRing, key_of
from expirebridge.task.missing_ability import MissingAbility
from expirebridge.task.policies import UNKNOWN_DELAY
from expirebridge.task.task import State
from expirebridge.task.texts import plural

_SAMPLE = 100
_DUE_SAMPLE = 1000
_NEEDED = ("args", "signal")
"""The fields of a record that a listener opens before it runs the task."""
_STATES = (State.PENDING, State.WAITING, State.PAUSED, State.RUNNING)


def checks(settings: Settings, _max_overdue: float) -> Sequence[Check]:
    """Give what the doctor checks, and the dashboard what listeners found."""
    on = frozenset({Occasion.DOCTOR, Occasion.COURSE})
    return [
        Check(order=70, name="keys", look=if_any(check_keys(settings.key_ring))),
        Check(order=71, name="arguments", look=if_any(check_opened()), on=on),
    ]


def check_keys(key_ring: KeyRing | None) -> Steps[Finding | None]:
    """Check whether EXPIREBRIDGE_KEYS has the keys of all that tasks need to run.

    That is their arguments, and what a signal said. None if none is sealed. Only the first hundred
    of each state are looked at: arguments may be large.
    """
    counts, sealed = Counter[str](), 0
    for state in _STATES:
        pages = Pages(partial(record_page, state))
        examined = 0
        while examined < _SAMPLE and (page := (yield from pages.next())):
            examined += page.examined
            for _, record in page.records:
                keys = (key_of(record.get(field, b"")) for field in _NEEDED)
                names = {name for name in keys if name is not None}
                counts.update(names)
                sealed += bool(names)
    if not counts:
        return None
    here = key_ring.names if key_ring is not None else frozenset[str]()
    missing = {name: count for name, count in sorted(counts.items()) if name not in here}
    if not missing:
        return ok("keys", f"{plural(sealed, 'task is', 'tasks are')} sealed with known keys")
    named = ", ".join(
        f"{plural(count, 'task is', 'tasks are')} sealed with key {name}"
        for name, count in missing.items()
    )
    return warning(
        "keys",
        f"{named}, which EXPIREBRIDGE_KEYS lacks here: a listener without it cannot run them",
        "give listeners the key, and doctor as well; or seal with another one: expirebridge reseal",
    )


def check_opened() -> Steps[Finding | None]:
    """Check whether tasks wait because a listener lacked their key, or the codec.

    None if none does. It is what listeners found that claimed such tasks.
    """
    waiting = yield from inspection.find_unhandled(UNKNOWN_DELAY, limit=_DUE_SAMPLE)
    needs = {
        MissingAbility.KEY: ("the key that opens them", "the right keys (EXPIREBRIDGE_KEYS)"),
        MissingAbility.CODEC: ("the codec that decodes them", "the codec (EXPIREBRIDGE_CODEC)"),
    }
    problems, remedies = list[str](), list[str]()
    for missing, (need, remedy) in needs.items():
        if counts := Counter(waiting.functions(missing)):
            named = first_of([f"{func} ({count})" for func, count in counts.most_common()])
            tasks = plural(counts.total(), "task waits", "tasks wait")
            problems.append(f"{tasks}, because a listener lacks {need}: {named}")
            remedies.append(remedy)
    if not problems:
        return None
    return warning(
        "arguments",
        f"{'; '.join(problems)}; each fails after 24 h",
        f"give all listeners {' and '.join(remedies)}, and restart them",
    )

"""Checks whether listeners know the functions of tasks."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from expirebridge.checks.finding import Check, Finding, Occasion, first_of, listed, ok, warning
from expirebridge.fleet.operations import KnownFunctions
from expirebridge.settings import Settings
from expirebridge.task.calls import fleet, inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.missing_ability import MissingAbility
from expirebridge.task.policies import UNKNOWN_DELAY
from expirebridge.task.texts import plural

_SAMPLE = 1000


def checks(settings: Settings, _max_overdue: float) -> Sequence[Check]:
    """Give what the doctor and the dashboard check."""
    on = frozenset({Occasion.DOCTOR, Occasion.COURSE})
    look = listed(check_functions(settings.lease))
    return [Check(order=20, name="functions", look=look, on=on)]


def check_functions(lease: float) -> Steps[Finding]:
    """Check whether tasks wait because no listener knows their function, or will when they are due.

    The first is what listeners found that claimed such tasks. For the second, the functions of the
    tasks that come next are held against what the listeners know that beat within `lease` seconds,
    and so are those that they run instead if they are signalled.
    """
    waiting = yield from inspection.find_unhandled(UNKNOWN_DELAY, limit=_SAMPLE)
    coming = yield from inspection.survey_functions(_SAMPLE)
    known = KnownFunctions.of((yield from fleet.read_fleet(lease)))
    counts = Counter(waiting.functions(MissingAbility.FUNCTION))
    unknown = known.unknown(func for func in coming.functions if func not in counts)
    on_signal = known.unknown(
        func for func in coming.on_signal if func not in counts and func not in unknown
    )
    problems = []
    if counts:
        named = [f"{func} ({count})" for func, count in counts.most_common()]
        problems.append(
            f"tasks{_scope(waiting.examined)} wait for functions that the listeners do not know: "
            f"{first_of(named)}; each fails after 24 h"
        )
    problems += _will_wait("when they are due", unknown, coming.examined)
    problems += _will_wait("if they are signalled", on_signal, coming.examined)
    if problems:
        remedy = "add them to the handlers' folder and restart the listeners, or cancel the tasks"
        return warning(
            "functions",
            "; ".join(problems),
            remedy + _which([*dict(counts.most_common()), *unknown]),
        )
    fine = f"no task{_scope(waiting.examined)} waits for an unknown function"
    if known.silent:
        silent = plural(known.silent, "listener does", "listeners do")
        fine += f" ({silent} not say what it knows: of tasks to come nothing is known)"
    return ok("functions", fine)


def _scope(examined: int) -> str:
    """The part of the tasks that was examined, unless it was all."""
    return "" if examined < _SAMPLE else f" among the {_SAMPLE:,} that are due first"


def _will_wait(when: str, unknown: Mapping[str, str], examined: int) -> list[str]:
    """What will become of tasks, if any, whose functions are not known; why is said of each."""
    named = [f"{func}: {why}" for func, why in unknown.items()]
    return [f"tasks{_scope(examined)} will wait {when}: {first_of(named)}"] if named else []


def _which(funcs: Sequence[str]) -> str:
    """How to find the tasks with these functions. A list finds none by what a signal runs."""
    if not funcs:
        return ", which expirebridge compat --tasks FOLDER names"
    return f": expirebridge list --func {shlex.quote(funcs[0])}"

"""Why a task of a ledger is not claimed: rows are to be carried first."""

from expirebridge.ledger.calls import MOST_DIRTY
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.explaining import Explanations, Precedence, obstacle
from expirebridge.task.reason import Reason
from expirebridge.task.texts import plural

_REMEDY = "expirebridge ledger status"


def explain(_found: Circumstances, _settings: Settings) -> Steps[Explanations]:
    """Explain due tasks of a ledger."""
    yield from ()
    return {Precedence.BLOCKED: _is_held_up, Precedence.SOON: _is_relayed}


def _is_held_up(found: Circumstances) -> Reason | None:
    dirty = found.fact("dirty")
    if not found.needs_listener or dirty is None or dirty <= MOST_DIRTY:
        return None
    text = f"its ledger must first write {plural(dirty, 'row', 'rows')}"
    return obstacle(found, "ledger", text, _REMEDY)


def _is_relayed(found: Circumstances) -> Reason | None:
    if not found.needs_listener or found.fact("dirty") is None:
        return None
    text = "it is of a ledger: a listener that has it must first relay what was committed"
    return obstacle(found, "ledger", text, _REMEDY)

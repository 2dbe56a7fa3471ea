"""Why a task is tried again and again: no listener opened its arguments, or decoded them."""

from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.explaining import Explanations, Precedence, obstacle
from expirebridge.task.missing_ability import NOT_OPENED, MissingAbility
from expirebridge.task.reason import Reason


def explain(_found: Circumstances, _settings: Settings) -> Steps[Explanations]:
    """Explain tasks that listeners put off which lacked their key, or the codec."""
    yield from ()
    return {Precedence.UNABLE: _was_not_opened}


def _was_not_opened(found: Circumstances) -> Reason | None:
    error = found.task.error or ""
    missing = MissingAbility.of(error)
    if not found.is_put_off or missing is MissingAbility.FUNCTION:
        return None
    because = error.removeprefix(NOT_OPENED).partition("; tried again")[0]
    text = f"no listener opened it: {because}"
    return obstacle(found, missing.value, text, "expirebridge doctor")

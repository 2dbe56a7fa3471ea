"""The pipe: the steps that an attempt takes from its beginning to its conclusion."""

from expirebridge.hooks import End, Hooks, Misfired, Started
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.exceptions import StartRefused
from expirebridge.listener.execution.invoke import Invoker
from expirebridge.listener.execution.outcome import AttemptOutcome


class Pipe:
    """Misfires an attempt, or refuses it, or calls its handler."""

    def __init__(self, caller: Invoker, hooks: Hooks) -> None:
        self._caller = caller
        self._hooks = hooks

    async def conclude(self, attempt: Attempt) -> AttemptOutcome:
        """Take the attempt, whose lateness is known, to its conclusion.

        Raises StartRefused, and nothing that a handler could raise.
        """
        return self._misfire(attempt) or self._refuse(attempt) or await self.call(attempt)

    def _misfire(self, attempt: Attempt) -> AttemptOutcome | None:
        """The conclusion if it is too late to run now."""
        conclusion = attempt.misfire(attempt.lateness)
        if conclusion is not None:
            attempt.begin()
            done = "skipped" if conclusion.end is End.FAILED else "spread"
            self._hooks.emit(Misfired(task=attempt.task, lateness=attempt.lateness, done=done))
        return conclusion

    def _refuse(self, attempt: Attempt) -> AttemptOutcome | None:
        """The conclusion if there is nothing that could be called."""
        if attempt.handler is not None:
            self._hooks.emit(Started(task=attempt.task, lateness=attempt.lateness))
        conclusion = attempt.refusal()
        if conclusion is not None:
            attempt.begin()
        return conclusion

    async def call(self, attempt: Attempt) -> AttemptOutcome:
        """Call the handler and conclude how it ended.

        Raises StartRefused, and nothing that a handler could raise.
        """
        try:
            return attempt.conclusions.succeeded(await self._caller.call(attempt))
        except StartRefused:
            raise
        except BaseException as error:
            return attempt.after(error)

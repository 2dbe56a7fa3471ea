"""Operations on the format of a database, which decides what older code may still use it."""

from expirebridge.operations.subject import Subject
from expirebridge.store import calls
from expirebridge.store.calls import Call
from expirebridge.task import Format


class FormatOperations(Subject):
    """Read the format of the database, raise it and lower it."""

    def read_format(self) -> Call[Format]:
        """Return the format of the database, what needs it, and who could not follow a raise.

        Plain use is format 1. See `docs/wire-protocol.md`, "Versions".
        """
        return calls.read_format(self._settings.lease)

    def raise_format(self) -> Call[None]:
        """Raise the format to 2, so that older code refuses the database; idempotent.

        The first use of what needs format 2 does the same by itself. It also stops producers and
        dashboards of older versions, which the server does not know: upgrade them first. Raises
        FormatRefused, with their names, while listeners beat that know only format 1; nothing is
        written then.
        """
        return calls.raise_format(self._settings.lease)

    def lower_format(self) -> Call[None]:
        """Lower the format to 1, so that older code can use the database again; idempotent.

        Raises FormatRefused while something needs format 2; nothing is written then.
        """
        return calls.lower_format()

"""The functions that live listeners have registered, as far as they report them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from expirebridge.handlers.aliases import suggestion
from expirebridge.handlers.signatures import digest_of
from expirebridge.task.calls.fleet import Fleet


def believed(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Return the shapes of the functions of each code, by its fingerprint.

    A declaration whose fingerprint is another is left out: another client overwrote it.
    """
    return {code: shapes for code, shapes in fleet.codes.items() if digest_of(shapes) == code}


@dataclass(frozen=True, slots=True)
class KnownFunctions:
    """The functions that the listeners of a fleet have."""

    names: frozenset[str] = frozenset()
    telling: int = 0
    """How many listeners declare their functions."""
    silent: int = 0
    """How many do not, since another client overwrote what they declared."""

    @classmethod
    def of(cls, fleet: Fleet) -> Self:
        """Collect the functions of a fleet."""
        codes = believed(fleet)
        telling = sum(listener.fingerprint in codes for listener in fleet.listeners)
        return cls(
            frozenset(name for shapes in codes.values() for name in shapes),
            telling,
            len(fleet.listeners) - telling,
        )

    @property
    def all_tell(self) -> bool:
        """True if a function that is not among the names is certainly unknown."""
        return self.telling > 0 and not self.silent

    def why_unknown(self, func: str) -> str | None:
        """Return what to say of a function that is not known, with the nearest name.

        None if a listener has it, or if none reports its functions.
        """
        if func in self.names or not self.telling:
            return None
        near = suggestion(func, self.names)
        if self.silent:
            total = self.telling + self.silent
            return (
                f"{self.telling} of {total} listeners do not know it{near}, the others do not say"
            )
        return f"no listener knows it{near}"

    def unknown(self, funcs: Iterable[str]) -> dict[str, str]:
        """Return those of the functions that no listener knows, each with what to say of it."""
        return {func: why for func in funcs if (why := self.why_unknown(func)) is not None}

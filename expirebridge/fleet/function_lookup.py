"""Gives the look-up of functions to who does not reach it by the operations."""

from collections.abc import Iterable

from expirebridge.fleet.operations import KnownFunctions, UnknownFunctions
from expirebridge.settings import Settings
from expirebridge.task.calls.fleet import Fleet


def lookup_for(settings: Settings) -> UnknownFunctions:
    """Return what warns of functions that no listener has."""
    return UnknownFunctions("warn", settings)


def unknown_of(fleet: Fleet, funcs: Iterable[str]) -> dict[str, str]:
    """Return those of the functions that no listener of a fleet has, and what to say of each."""
    return KnownFunctions.of(fleet).unknown(funcs)

"""Gives the look-up of functions to who makes tasks otherwise than by the operations."""

from expirebridge.fleet.operations import UnknownFunctions
from expirebridge.settings import Settings


def lookup_for(settings: Settings) -> UnknownFunctions:
    """Return what warns of functions that no listener has."""
    return UnknownFunctions("warn", settings)

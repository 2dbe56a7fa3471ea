"""The fingerprint of a registry: which functions a listener knows, and the shapes of their
signatures."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import orjson

from expirebridge.handlers.registry import Registry
from expirebridge.handlers.signatures import shape_of

_LENGTH = 16
"""Hexadecimal digits: two codes of one fleet never have the same by chance."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Is the same for listeners that know the same functions, with the same shapes."""

    digest: str
    shapes: Mapping[str, str]
    """The shape of each function, by every name that tasks may give it."""

    @classmethod
    def of(cls, registry: Registry) -> Self:
        """Take the fingerprint of what this registry holds now."""
        shapes = {name: shape_of(handler.function) for name, handler in registry.names().items()}
        return cls(digest_of(shapes), shapes)


def digest_of(shapes: Mapping[str, str]) -> str:
    """Return the digest of the functions' shapes, by their names, in any order."""
    canonical = orjson.dumps(shapes, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:_LENGTH]

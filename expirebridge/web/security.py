"""Who may come in: those with the right credentials, or those on this machine."""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from expirebridge.errors import InvalidSetting


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Who may come in: whoever has the token, or one of the users with their password.

    A token is sent as `Authorization: Bearer`, or as the password of any user name, which is how a
    browser asks for it. Raises InvalidSetting for an empty secret.
    """

    token: str | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        secrets = [*self.users.values(), *([] if self.token is None else [self.token])]
        if not secrets or not all(secrets) or any(":" in name for name in self.users):
            raise InvalidSetting(
                "credentials: give a token, or users with passwords; none is empty"
            )

    def name_of(self, authorization: str) -> str | None:
        """Who sends this header: the user's name, "token", or None if nobody who may."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.token is not None:
            return "token" if _equal(value.strip(), self.token) else None
        if scheme.lower() != "basic":
            return None
        try:
            decoded = base64.b64decode(value.strip(), validate=True).decode()
        except ValueError:  # neither base64, nor UTF-8
            return None
        user, _, password = decoded.partition(":")
        # As much is done for a user who is not known as for one who is.
        known = self.users.get(user)
        if _equal(password, known if known is not None else "") and known is not None:
            return user
        if self.token is not None and _equal(password, self.token):
            return "token"
        return None


def _equal(given: str, secret: str) -> bool:
    """Compare without telling by the time how much of it was right, nor how long the secret is."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (given, secret)]
    return hmac.compare_digest(*digests)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

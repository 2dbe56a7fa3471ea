"""Who may use the dashboard: users with the right credentials, or users of this machine."""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from expirebridge.errors import InvalidSetting


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Who may sign in: anyone with the token, or a user with a password.

    A token is sent as `Authorization: Bearer`, or as the password of any user name, since that is
    what a browser can ask for. Raises InvalidSetting for an empty secret.
    """

    token: str | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        secrets = [*self.users.values(), *([] if self.token is None else [self.token])]
        if not secrets or not all(secrets) or any(":" in name for name in self.users):
            raise InvalidSetting(
                "credentials: give a token, or users with passwords; none may be empty"
            )

    def name_of(self, authorization: str) -> str | None:
        """Who sends this header: a user's name, or "token". None if the credentials are wrong."""
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
        # An unknown user takes the same steps as a known one.
        known = self.users.get(user)
        if _equal(password, known if known is not None else "") and known is not None:
            return user
        if self.token is not None and _equal(password, self.token):
            return "token"
        return None


def _equal(given: str, secret: str) -> bool:
    """Compare in a time that reveals neither how much was right nor how long the secret is."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (given, secret)]
    return hmac.compare_digest(*digests)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

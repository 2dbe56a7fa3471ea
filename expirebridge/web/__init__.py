"""The dashboard: a face in the browser, to run by itself or to mount in an ASGI application.

Needs the extra `web`. See `docs/dashboard.md`.
"""

from expirebridge.web.application import app, without_arguments
from expirebridge.web.security import Credentials, is_loopback

__all__ = ["Credentials", "app", "is_loopback", "without_arguments"]

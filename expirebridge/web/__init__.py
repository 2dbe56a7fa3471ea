"""The dashboard for the browser: it runs by itself or mounted in an ASGI application.

Needs the extra `web`. See `docs/how-to/dashboard.md`.
"""

from expirebridge.web.application import app, without_arguments
from expirebridge.web.guard import Credentials, is_loopback
from expirebridge.web.root_path import under

__all__ = ["Credentials", "app", "is_loopback", "under", "without_arguments"]

"""The listener: one file for each of its roles, and `listener.py` that wires them."""

from expirebridge import handlers, hooks
from expirebridge.on_demand import load_all
from expirebridge.store import calls

load_all(calls, hooks, handlers)  # later, an import would hold up the event loop

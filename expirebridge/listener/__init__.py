"""The listener: one file for each of its roles, and `listener.py` that wires them."""

from expirebridge import handlers, hooks
from expirebridge.task.lazy_imports import load_all

load_all(hooks, handlers)  # later, an import would hold up the event loop

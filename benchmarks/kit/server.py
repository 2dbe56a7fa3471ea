"""Where the server is, as the lab tells the contenders' processes, and which handler is wanted."""

import os

HOST = "127.0.0.1"
PORT = int(os.environ["LAB_PORT"])
DATABASE = 1
URL = f"redis://{HOST}:{PORT}/{DATABASE}"

HANDLER = os.environ.get("LAB_HANDLER", "async")
"""`async` or `plain`: the kind of handler that the tasks are for."""
CONCURRENCY = int(os.environ.get("LAB_CONCURRENCY", "100"))
"""How many tasks a worker may run at a time."""
SERIES = int(os.environ.get("LAB_SERIES", "0"))
"""How many series have a tick each minute: those with the numbers from 0 on."""
USER = "user@example.com"
"""The second argument of every task; the first is its number."""

"""`python -m expirebridge` is the command `expirebridge`."""

from expirebridge.cli.main import run

run()

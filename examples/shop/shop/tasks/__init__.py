"""The handlers of the shop."""

# Once, mail.py was letters.py. Tasks that were made then still run.
ALIASES = {"letters": "mail"}

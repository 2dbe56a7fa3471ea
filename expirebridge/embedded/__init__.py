"""The embedded server, for demos, tests and development."""

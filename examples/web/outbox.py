"""What the application and its handlers share, since they run in one process."""

sent: list[str] = []

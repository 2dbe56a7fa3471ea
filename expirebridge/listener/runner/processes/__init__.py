"""The processes in which handlers with `process=True` are called, as their listener sees them."""

"""Example handlers. Drop a module of your own beside them, and restart the listener."""

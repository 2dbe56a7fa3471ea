"""What runs in a process for handlers: it calls them, one at a time, for its listener."""

"""One function for each Redis script: its arguments, and how its reply is read."""

"""One file for each measurement. Each has a `MEASUREMENT`, and says above what it measures."""

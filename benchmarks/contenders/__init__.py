"""One file for each system that is measured, written as its own documentation says."""

"""The runner: everything of a listener that calls handlers, for all stations of the process."""

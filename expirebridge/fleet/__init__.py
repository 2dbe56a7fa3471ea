"""The fleet: listeners with different code, and which functions each of them knows."""

"""The parent of several listeners."""

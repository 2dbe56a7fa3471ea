"""Moves tasks from another database, and imports jobs from other libraries."""

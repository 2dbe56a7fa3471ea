"""Series in the database: what is stored of one, and how its ticks come about.

All of it is calls, which listeners, producers and tests run.
"""

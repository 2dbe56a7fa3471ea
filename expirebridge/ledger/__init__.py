"""The ledger: tasks in a table of the application's own SQL database.

Needs the extra `sql`. Nothing else of expirebridge imports SQLAlchemy.
"""

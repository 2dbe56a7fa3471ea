"""Migrations: the ledger's tables."""

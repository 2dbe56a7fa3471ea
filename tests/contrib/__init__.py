"""Frameworks: each test has a project of its own."""

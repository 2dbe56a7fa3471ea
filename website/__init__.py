"""The documentation site: `make docs` builds it from README.md, `docs/` and the docstrings."""

"""Functions for other languages: what other clients call on the server."""

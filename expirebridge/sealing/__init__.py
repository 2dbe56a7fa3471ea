"""Sealed and encoded arguments: keys, codecs, and sealing again with new keys."""

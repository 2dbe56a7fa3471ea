"""Hooks that log, count and trace. The core never imports them."""

"""Logs, metrics, traces, and statistics of recent tasks. The core never imports them."""

"""What other clients do: keys that they set or change, and functions for other languages."""

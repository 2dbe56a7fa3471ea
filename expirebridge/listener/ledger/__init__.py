"""The listener's part of the ledger: the gate, the relay and retention loops, the row check."""

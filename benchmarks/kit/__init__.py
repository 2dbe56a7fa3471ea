"""What runs inside the contenders' own processes: the standard library only."""

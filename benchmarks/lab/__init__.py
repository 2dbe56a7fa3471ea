"""What sets up servers and contenders, and judges what they did."""

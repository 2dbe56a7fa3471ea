"""What belongs to other people's frameworks, each in a package of its own."""

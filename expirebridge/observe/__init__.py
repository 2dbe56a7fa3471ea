"""What attaches to the core's hooks: the core never imports it."""

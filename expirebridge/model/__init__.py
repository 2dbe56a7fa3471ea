"""Values and rules: what tasks and series are made with. Nothing here asks a server."""

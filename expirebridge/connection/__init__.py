"""Where the servers are: URLs, the clients that they name, and which server is the primary now."""

"""A shop: a web application and its handlers."""

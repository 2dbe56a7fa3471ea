"""The API of producers: the bridges and their operations."""

"""The other libraries whose jobs can be imported: one module each, which reads and never writes."""

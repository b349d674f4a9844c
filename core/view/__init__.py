"""What people look at, as typed values: one source for tables, JSON and pages. What is not known is None, never 0."""

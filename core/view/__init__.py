"""Typed values for tables, JSON and pages, from one source. Unknown values are None, never 0."""

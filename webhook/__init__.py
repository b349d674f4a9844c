"""HTTP in, admission review out; the rules themselves live in core."""

"""Serves admission reviews over HTTP. The rules are in core."""

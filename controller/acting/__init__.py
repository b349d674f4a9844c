"""Writes to the cluster: Bindings, locks, the status of groups."""

"""Watches the cluster, plans with core, and writes Bindings, conditions and events."""

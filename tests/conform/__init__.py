"""Differential vectors run through the core, and what must hold of every decision whatever upstream said."""

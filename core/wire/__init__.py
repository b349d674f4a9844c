"""Converts text that enters or leaves the process to values and back; makes no decisions."""

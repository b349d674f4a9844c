"""Explains why a pod waits, and finds the smallest change that helps."""

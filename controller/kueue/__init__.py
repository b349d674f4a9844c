"""Kueue's admission check: whether the pods of Workloads that have quota fit now. Nothing here places a pod."""

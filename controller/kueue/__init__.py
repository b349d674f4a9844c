"""Kueue's admission check: whether the pods of Workloads with quota fit now. It places no pods."""

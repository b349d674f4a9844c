"""Kubelets and their state: the nodes, what they admit, and what containers received."""

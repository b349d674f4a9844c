"""Kubelets and what they keep: which nodes there are, what they admit, and what containers received."""

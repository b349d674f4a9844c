"""The demo: a cluster with the product beside it, the examples applied, and their outcomes."""

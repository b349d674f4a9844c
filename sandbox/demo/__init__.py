"""The demo: a cluster with the product beside it, the examples applied, and what became of them."""

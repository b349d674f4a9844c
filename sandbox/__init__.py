"""A cluster in one process for demo and tests: an API server double, and players of kubelet and device plugins."""

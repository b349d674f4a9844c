"""A cluster in one process for demo and tests: API server double, kubelet and device-plugin players."""

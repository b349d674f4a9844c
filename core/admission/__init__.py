"""What the webhook decides: which pods are mended, protected or denied. Pure; texts and metrics are the webhook's."""

"""What the webhook decides: which pods are changed, protected or denied. Pure; texts and metrics are the webhook's."""

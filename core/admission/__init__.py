"""The webhook's decisions: which pods are changed, protected or denied. Pure; the webhook owns texts and metrics."""

"""Creates, stores and renews the webhook's certificates."""

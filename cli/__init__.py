"""kubectl cards: shows what the cards hold and why a pod waits, only from the Kubernetes API and the controller."""

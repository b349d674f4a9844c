"""kubectl cards: what the cards hold and why a pod waits; reads only what the API and the controller tell."""

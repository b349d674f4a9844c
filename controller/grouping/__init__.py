"""Groups and queues: which gang may begin, and what a queue has left."""

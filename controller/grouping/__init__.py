"""Groups and queues: which gangs may start, and what each queue has left."""

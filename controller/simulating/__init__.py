"""What would happen: a copy of the cluster in memory, changed and decided by the controller's own scheduler.

Nothing here writes to a cluster. Deciding itself is in `controller.deciding`, and reading in `controller.watches`.
"""

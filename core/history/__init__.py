"""What was decided on each pod, and what cards and queues were used for in each minute: bounded records. Pure."""

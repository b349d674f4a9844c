"""What happens between a Binding and the devices: who is in flight on a node, and who waits for whom."""

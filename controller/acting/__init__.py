"""What is written outside: Bindings, locks, the status of groups."""

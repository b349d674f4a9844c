"""What people and tools are told: conditions, events, answers to questions, the audit."""

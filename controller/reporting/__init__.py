"""Reports to people and tools: conditions, events, answers to questions, the audit."""

"""What crosses the process, text to values and back; nothing here decides."""

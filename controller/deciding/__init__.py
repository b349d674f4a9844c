"""What becomes of each pending pod: its stages, its turn, its place. The scheduler alone writes here."""

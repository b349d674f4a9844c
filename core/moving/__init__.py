"""Makes room by moving pods: which pods may move, and the fewest and gentlest moves that let a unit in. Pure."""

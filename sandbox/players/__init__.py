"""Players of device plugins: each finds its pod by the real plugin's algorithm, with the same failures."""

"""What every long-running process needs: startup, options, and one HTTP server."""

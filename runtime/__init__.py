"""What every long-running process of ours needs: its start, its options, and one way to serve HTTP."""

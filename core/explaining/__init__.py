"""Why a pod waits, and the smallest change that helps."""

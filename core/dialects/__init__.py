"""One folder per device protocol, all behind core.port; no dialect knows another."""

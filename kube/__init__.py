"""The API server, typed: credentials, calls, list and watch; no rule of ours belongs here."""

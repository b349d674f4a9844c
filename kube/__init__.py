"""A typed client of the API server: credentials, calls, lists and watches. It contains no rules of cardshare."""

"""A real browser for the tests of the web page."""

"""The port: the one interface that every dialect (device protocol) implements.

To add a protocol, write one package in core/dialects that exports a `spec.DialectSpec`, and name it in core/catalog.py;
nothing else knows the form of that protocol's cards. A dialect is a stateless object: every method is a pure function
of its arguments.

`dialect` has the methods of a dialect. The values that they exchange are in `refusals` (why not), `cards` (what exists,
is free or held) and `handoff` (from a Binding to the devices).

Three values belong to the dialect alone and are opaque to all other code (frozen, hashable, compared by value):
its *card* (one accelerator with its use), its *request* (everything that a pod requests of it, parsed, with selectors
and preferences) and its *assignment* (which cards a pod holds, and how much of each).
"""

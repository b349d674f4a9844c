"""What a device protocol must answer: the one interface behind which every dialect stands.

To add a protocol, write one folder in core/dialects that exports a `spec.DialectSpec`, and name it in core/catalog.py;
nothing else knows what a card of that protocol looks like. A dialect is a stateless object: every method is a
pure function of its arguments.

What every dialect answers stands in the six roles of `dialect`. What only some have are roles of their own, in
`optional`, and the others have nothing of them. What they hand to and fro is in `refusals` (why not), `cards` (what
there is, what is free, what is held) and `handoff` (from a Binding to the devices).

Three values belong to the dialect alone and are opaque to everybody else (frozen, hashable, compared by value):
its *card* (one accelerator with what is in use on it), its *request* (all that a pod asks of it, selectors and
preferences included, already parsed) and its *assignment* (which cards a pod holds, and how much of each).
"""

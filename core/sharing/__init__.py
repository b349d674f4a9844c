"""One engine for shared cards: what cards have, what pods ask for, what fits, and what is in use.

A dialect declares only its own part: how it reads a register (into `card`), a pod (`request`) and an assignment (into
`account`), and the few rules that differ (`fit.Rules`). `fit` has the order of rules and the bounds of scores,
`refused` why a request gets nothing, `slices` the layouts of MIG, `order` how cards compare, and `dialect` the part of
the port that is the same for all.
"""

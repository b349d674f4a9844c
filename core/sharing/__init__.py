"""One engine for shared cards: what cards have, what pods ask, what fits, what is in use.

A dialect declares what is its own: how a register is read (into `card`), what a pod asks (`request`), what an
assignment says (`account`), and the few rules that differ (`rules`). `fit` has the one order of rules, `bounds` what
limits a score, `slices` the layouts of MIG, `order` how cards compare, and `dialect` the part of the port that is the
same for all.
"""

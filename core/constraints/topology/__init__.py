"""Where pods may be by where others are: what they ask (`peers`), who is counted where (`views`, `counting`)."""

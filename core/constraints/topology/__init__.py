"""Where pods may be because of other pods: what they ask (`peers`), and which pods are where (`counting`, `views`)."""

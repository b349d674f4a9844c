"""Where a pod or a gang goes: shapes, scores, candidates, the decision."""

"""``kubectl cards web``: one page of the cluster's cards, on this machine, by the user's own kubeconfig."""

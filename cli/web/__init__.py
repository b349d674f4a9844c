"""``kubectl cards web``: a local page of the cluster's cards, with the rights of the user's kubeconfig."""

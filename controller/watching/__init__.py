"""What the cluster shows: pods, nodes, ConfigMaps and groups, as the watches bring them."""

"""The state of the cluster from watches: pods, nodes, ConfigMaps and groups."""

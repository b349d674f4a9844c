"""Whole GPUs of NVIDIA's own device plugin, chosen by model: the node is chosen here, the cards by the plugin."""

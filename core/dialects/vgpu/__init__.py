"""The Volcano vGPU device plugin's protocol: shares of NVIDIA cards by memory and cores, and MIG slices."""

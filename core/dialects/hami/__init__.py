"""Shares of NVIDIA cards handed over by HAMi's own device plugin: ``nvidia.com/gpu`` with memory and cores."""

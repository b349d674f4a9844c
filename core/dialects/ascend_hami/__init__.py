"""Shares of Ascend chips handed over by the HAMi device plugin for Ascend, behind the port."""

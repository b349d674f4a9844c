"""HAMi's protocol for cards of other vendors than NVIDIA and Huawei: one engine, one small declaration each."""

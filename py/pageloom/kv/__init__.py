"""Bookkeeping of the paged KV cache: which block holds what, and for whom. No tensor and no device."""

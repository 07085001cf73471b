"""The CPU backend: compiled kernels from `pageloom_cpu` where it is installed, the numpy reference where it is not."""

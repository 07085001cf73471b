"""Triton kernels. Importing a module here needs Triton; nothing else of the backend does before a kernel is
launched."""

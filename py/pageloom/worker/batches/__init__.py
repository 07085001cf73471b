"""Many prompts at leisure: files of requests, and batches of them that survive a restart."""

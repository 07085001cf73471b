"""The commands of `pageloom`, a module each, and what they share."""

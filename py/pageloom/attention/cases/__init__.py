"""The conformance matrix of the attention operators."""

"""Grammars over bytes and what tokens they allow: how an answer is kept to a JSON Schema."""

"""How each model family describes its decoder; `decoder.py` is the way in."""

"""Token bytes to text, a token at a time."""

from __future__ import annotations

import codecs


class TextStream:
    """Decodes UTF-8 that arrives in pieces cut anywhere.

    Bytes that may still become a character are held; bytes that cannot are replaced by U+FFFD at once. All texts that
    `push` and `finish` return, joined, equal the decoding of all bytes at once. A piece costs its own length.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The text that `data` completes, maybe none."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Ends the text: a character left incomplete becomes U+FFFD. The stream then begins anew."""
        return self._decoder.decode(b"", final=True)

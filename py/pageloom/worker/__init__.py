"""The local worker: an HTTP server on this machine that any OpenAI client can talk to.

HTTP handlers (the server's event loop)        the engine (a thread with a loop of its own)
guard ► bodies ► openai/ ► generation ──────►  ModelThread: admission, then one engine for everybody
                 batches/ (SQLite) ─────────►       │
                 operators ─────────────────►  OperatorThread: one operator at a time
"""

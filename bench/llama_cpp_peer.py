"""llama.cpp through the low-level API of `llama-cpp-python`: prompts, and greedy decoding of sequences together."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import llama_cpp
import numpy as np


class LlamaCppPeer:
    """One context with room for `sequences` sequences of `context` tokens together."""

    def __init__(self, model: Path, threads: int, sequences: int, context: int) -> None:
        llama_cpp.llama_backend_init()
        self._log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._log, ctypes.c_void_p(0))
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), llama_cpp.llama_model_default_params())
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = context, sequences
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def prompt_seconds(self, ids: list[int]) -> float:
        """How long a prompt takes until its next token is known."""
        self._forget()
        started = time.perf_counter()
        self._run([(token, position, 0) for position, token in enumerate(ids)], [len(ids) - 1])
        return time.perf_counter() - started

    def decode_seconds(self, prompts: list[list[int]], tokens: int) -> float:
        """How long `tokens` more tokens of each sequence take, all sequences in each step."""
        self._forget()
        last = [
            self._run([(token, position, sequence) for position, token in enumerate(ids)], [len(ids) - 1])[0]
            for sequence, ids in enumerate(prompts)
        ]
        started = time.perf_counter()
        for step in range(tokens):
            entries = [(token, len(prompts[seq]) + step, seq) for seq, token in enumerate(last)]
            last = self._run(entries, list(range(len(entries))))
        return time.perf_counter() - started

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def _forget(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def _run(self, entries: list[tuple[int, int, int]], rows: list[int]) -> list[int]:
        """One step of (token, position, sequence); the most likely next tokens of the entries `rows`."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for index, (token, position, sequence) in enumerate(entries):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = index in rows
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise RuntimeError("llama.cpp could not run the step")
        pointers = (llama_cpp.llama_get_logits_ith(self._context, row) for row in rows)
        return [int(np.ctypeslib.as_array(pointer, (self._vocabulary,)).argmax()) for pointer in pointers]

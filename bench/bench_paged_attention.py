"""PagedAttention: the direct tiers against gather-then-flash, in turns, with the limits of this adapter.

    python bench/bench_paged_attention.py [options of `pageloom bench`]

On an H200 the figures of ONNX Runtime's CUDA kernels for the same shapes stand beside ours.
"""

from __future__ import annotations

import sys

from pageloom.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *(sys.argv[1:] or ["--quick"])]))

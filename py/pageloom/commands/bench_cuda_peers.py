"""What the CUDA benchmark measures beside ours: PyTorch's attention on dense tensors, and cuDNN's own on pages."""

from __future__ import annotations

from typing import Any

import torch

from pageloom.commands.bench_cuda_calls import Step, random_halves
from pageloom.commands.bench_shapes import Shape
from pageloom.errors import DeviceError, NotSupported


def torch_step(shape: Shape, layers: int, backend: Any) -> Step:
    """PyTorch's attention with one of its backends, on dense tensors of the same size: no append, no pages."""
    query = random_halves((shape.batch, shape.num_heads, shape.new, shape.head_size))
    cache = (shape.batch, shape.kv_num_heads, shape.past + shape.new, shape.head_size)
    caches = [tuple(random_halves(cache) for _ in "kv") for _ in range(layers)]

    def step(layer: int) -> None:
        key, value = caches[layer]
        try:
            with torch.nn.attention.sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, is_causal=shape.new > 1, enable_gqa=True
                )
        except RuntimeError as error:
            raise NotSupported(f"PyTorch: {error}") from error

    return step


def cudnn_paged_step(shape: Shape, layers: int) -> Step | str:
    """cuDNN's attention that reads pages by a table of its own, on caches of shuffled blocks: no append. Without its
    frontend, the reason for none."""
    try:
        graph, places, workspace_bytes, handle = _paged_graph(shape)
    except (NotSupported, DeviceError) as error:
        return error.message
    total, columns = shape.past + shape.new, _columns(shape)
    blocks = shape.batch * columns
    cache = (blocks, shape.block_size, shape.kv_num_heads, shape.head_size)
    caches = [tuple(random_halves(cache) for _ in "kv") for _ in range(layers)]
    table = torch.randperm(blocks, device="cuda").to(torch.int32).reshape(shape.batch, 1, columns, 1)
    query = random_halves((shape.batch, shape.new, shape.num_heads, shape.head_size))
    output = torch.empty_like(query)
    lengths = {
        name: torch.full((shape.batch, 1, 1, 1), length, dtype=torch.int32, device="cuda")
        for name, length in (("q_lengths", shape.new), ("kv_lengths", total))
    }
    workspace = torch.empty(max(1, workspace_bytes), dtype=torch.uint8, device="cuda")
    fixed = lengths | {"q": query, "o": output, "k_table": table, "v_table": table}

    def step(layer: int) -> None:
        import cudnn  # noqa: PLC0415 - optional

        tensors = fixed | dict(zip(("k", "v"), caches[layer], strict=True))
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        try:
            graph.execute({places[name]: tensor for name, tensor in tensors.items()}, workspace, handle=handle)
        except Exception as error:  # the frontend's errors have no common base of their own
            raise DeviceError(f"cuDNN does not run attention over these pages: {error}") from error

    return step


def _columns(shape: Shape) -> int:
    return -(-(shape.past + shape.new) // shape.block_size)


def _paged_graph(shape: Shape) -> tuple[Any, dict[str, Any], int, Any]:
    try:
        import cudnn  # noqa: PLC0415 - optional
    except ImportError as error:
        raise NotSupported("nvidia-cudnn-frontend is not installed") from error
    handle = cudnn.create_handle()
    half, integer = cudnn.data_type.HALF, cudnn.data_type.INT32
    graph = cudnn.pygraph(
        io_data_type=half,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )

    def tensor(name: str, dim: list[int], stride: list[int], dtype: Any) -> Any:
        return graph.tensor(name=name, dim=dim, stride=stride, data_type=dtype)

    heads, kv_heads, width, size = shape.num_heads, shape.kv_num_heads, shape.head_size, shape.block_size
    columns = _columns(shape)
    q_shape = [shape.batch, heads, shape.new, width]
    q_stride = [shape.new * heads * width, width, heads * width, 1]
    kv_shape = [shape.batch * columns, kv_heads, size, width]
    kv_stride = [size * kv_heads * width, width, kv_heads * width, 1]
    places = {"q": tensor("q", q_shape, q_stride, half)}
    places |= {name: tensor(name, kv_shape, kv_stride, half) for name in ("k", "v")}
    places |= {
        name: tensor(name, [shape.batch, 1, columns, 1], [columns, columns, 1, 1], integer)
        for name in ("k_table", "v_table")
    }
    places |= {
        name: tensor(name, [shape.batch, 1, 1, 1], [1, 1, 1, 1], integer) for name in ("q_lengths", "kv_lengths")
    }
    causal = {"diagonal_alignment": cudnn.diagonal_alignment.BOTTOM_RIGHT, "diagonal_band_right_bound": 0}
    try:
        output, _ = graph.sdpa(
            name="paged",
            q=places["q"],
            k=places["k"],
            v=places["v"],
            generate_stats=False,
            attn_scale=width**-0.5,
            use_padding_mask=True,
            seq_len_q=places["q_lengths"],
            seq_len_kv=places["kv_lengths"],
            paged_attention_k_table=places["k_table"],
            paged_attention_v_table=places["v_table"],
            paged_attention_max_seq_len_kv=columns * size,
            **(causal if shape.new > 1 else {}),
        )
        output.set_output(True).set_dim(q_shape).set_stride(q_stride).set_data_type(half)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
    except Exception as error:  # the frontend's errors have no common base of their own
        raise DeviceError(f"cuDNN builds no plan for attention over these pages: {error}") from error
    places["o"] = output
    return graph, places, int(graph.get_workspace_size()), handle

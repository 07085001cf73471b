"""cuDNN's scaled dot-product attention, as graphs of its frontend: how one is built and run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from pageloom.attention.tensors import DType
from pageloom.backends.cuda.plans import Plan
from pageloom.errors import DeviceError

Causal = Literal["none", "top-left", "bottom-right"]
_handles: dict[int, Any] = {}


@dataclass(frozen=True, slots=True)
class SdpaForm:
    """One graph. Strides are elements from one batch row, head and token to the next; channels lie side by side.

    `kv_rows` is the capacity of K and V, which their strides come from. With `has_lengths` the keys of each batch row
    are an int32 on the device, and a bottom-right causal mask is anchored there; otherwise at `kv_rows`.
    """

    dtype: DType
    batch: int
    num_heads: int
    kv_num_heads: int
    rows: int
    kv_rows: int
    head_size: int
    v_head_size: int
    q_strides: tuple[int, int, int]
    k_strides: tuple[int, int, int]
    v_strides: tuple[int, int, int]
    o_strides: tuple[int, int, int]
    scale: float
    causal: Causal
    has_lengths: bool


def finite_values(value: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """`value` `[B, heads, rows, width]` with 0 beyond `lengths` int32[B], in memory of that order.

    cuDNN's prefill multiplies what its mask hides with 0, under which a NaN or an infinity lives on.
    """
    rows = torch.arange(value.shape[2], device=value.device)
    return torch.where((rows < lengths[:, None])[:, None, :, None], value, 0.0).contiguous()


@dataclass(frozen=True, slots=True)
class SdpaGraph:
    """A built graph, the places of its tensors, and the constant query lengths where it masks by lengths."""

    graph: Any
    places: dict[str, Any]
    query_lengths: torch.Tensor | None
    workspace_bytes: int


def run_sdpa(
    form: SdpaForm,
    plan: Plan,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    lengths: torch.Tensor | None,
) -> None:
    """Attention into `output`, on the current stream; the graph is built once and kept in `plan`.

    Rows that see no key are left to the caller. Where there is more than one query row, what V holds beyond `lengths`
    is multiplied with 0, so it must be finite. Raises `DeviceError` where cuDNN has no engine for the form.
    """
    device = query.device
    handle = _handle(device)
    built: SdpaGraph = plan.keep(form, lambda: _build(form, handle, device))
    tensors = {"q": query, "k": key, "v": value, "o": output}
    if lengths is not None:
        tensors |= {"q_lengths": built.query_lengths, "kv_lengths": lengths}
    workspace = torch.empty(max(1, built.workspace_bytes), dtype=torch.uint8, device=device)
    built.graph.execute({built.places[name]: tensor for name, tensor in tensors.items()}, workspace, handle=handle)


def _handle(device: torch.device) -> Any:
    """The device's cuDNN handle, set to PyTorch's current stream."""
    import cudnn  # noqa: PLC0415 - optional

    index = device.index if device.index is not None else torch.cuda.current_device()
    if index not in _handles:
        _handles[index] = cudnn.create_handle()
    cudnn.set_stream(handle=_handles[index], stream=torch.cuda.current_stream(device).cuda_stream)
    return _handles[index]


def _build(form: SdpaForm, handle: Any, device: torch.device) -> SdpaGraph:
    import cudnn  # noqa: PLC0415 - optional

    element = cudnn.data_type.HALF if form.dtype == "float16" else cudnn.data_type.BFLOAT16
    graph = cudnn.pygraph(
        io_data_type=element,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )

    def tensor(name: str, heads: int, rows: int, width: int, strides: tuple[int, int, int]) -> Any:
        return graph.tensor(name=name, dim=[form.batch, heads, rows, width], stride=[*strides, 1], data_type=element)

    places = {
        "q": tensor("q", form.num_heads, form.rows, form.head_size, form.q_strides),
        "k": tensor("k", form.kv_num_heads, form.kv_rows, form.head_size, form.k_strides),
        "v": tensor("v", form.kv_num_heads, form.kv_rows, form.v_head_size, form.v_strides),
    }
    options: dict[str, Any] = {}
    if form.has_lengths:
        for name in ("q_lengths", "kv_lengths"):
            places[name] = graph.tensor(
                name=name, dim=[form.batch, 1, 1, 1], stride=[1, 1, 1, 1], data_type=cudnn.data_type.INT32
            )
        options = {"use_padding_mask": True, "seq_len_q": places["q_lengths"], "seq_len_kv": places["kv_lengths"]}
    if form.causal != "none" and form.rows > 1:
        anchor = cudnn.diagonal_alignment
        options |= {
            "diagonal_alignment": anchor.TOP_LEFT if form.causal == "top-left" else anchor.BOTTOM_RIGHT,
            "diagonal_band_right_bound": 0,
        }
    output, _ = graph.sdpa(
        name="attention",
        q=places["q"],
        k=places["k"],
        v=places["v"],
        generate_stats=False,
        attn_scale=form.scale,
        **options,
    )
    shape = [form.batch, form.num_heads, form.rows, form.v_head_size]
    output.set_output(True).set_dim(shape).set_stride([*form.o_strides, 1]).set_data_type(element)
    places["o"] = output
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
    except Exception as error:  # the frontend's errors have no common base of their own
        raise DeviceError(f"cuDNN builds no plan for this attention: {error}; forbid tier cudnn") from error
    lengths = torch.full((form.batch,), form.rows, dtype=torch.int32, device=device) if form.has_lengths else None
    return SdpaGraph(graph, places, lengths, int(graph.get_workspace_size()))

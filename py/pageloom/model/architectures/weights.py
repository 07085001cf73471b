"""Takes tensors out of a GGUF table by name, checks their shapes and remembers which were taken."""

from __future__ import annotations

import re
from array import array

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.gguf import GgufFile, TensorInfo, read_tensor
from pageloom.model.source import RangedSource


class Weights:
    """The tensors of one model. `matrix` and `vector` return the name they were given."""

    def __init__(self, gguf: GgufFile, source: RangedSource) -> None:
        self._tensors = gguf.tensors
        self._source = source
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str, out_features: int, in_features: int) -> str:
        self._take(name, (out_features, in_features))
        return name

    def vector(self, name: str, length: int) -> str:
        self._take(name, (length,))
        return name

    def optional_vector(self, name: str, length: int) -> str | None:
        return self.vector(name, length) if name in self._tensors else None

    def rows_of(self, name: str, in_features: int) -> int:
        """The number of rows of a matrix with `in_features` columns."""
        tensor = self._find(name)
        return self._take(name, (tensor.shape[0], in_features)).shape[0]

    async def values(self, name: str, length: int) -> array[float]:
        """The float32 values of a small vector, read now."""
        return await read_tensor(self._source, self._take(name, (length,)))

    def unused(self) -> list[str]:
        """Warnings for the tensors that nobody took. Raises `NotSupported` where one belongs to a layer: the layer
        would compute something else than the file means."""
        unused = sorted(self._tensors.keys() - self._taken)
        in_layers = [name for name in unused if re.match(r"blk\.\d+\.", name)]
        if in_layers:
            shown = ", ".join(in_layers[:4]) + (f" and {len(in_layers) - 4} more" if len(in_layers) > 4 else "")
            raise NotSupported(
                f"the layers have tensors that this architecture does not use: {shown}", param=in_layers[0]
            )
        return [f"the tensor {name} is not used" for name in unused]

    def _find(self, name: str) -> TensorInfo:
        try:
            return self._tensors[name]
        except KeyError:
            raise BadModelFile(f"the tensor {name} is missing", param=name) from None

    def _take(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        tensor = self._find(name)
        if tensor.shape != shape:
            raise BadModelFile(
                f"{name} has the shape {list(tensor.shape)}; the metadata asks for {list(shape)}", param=name
            )
        self._taken.add(name)
        return tensor

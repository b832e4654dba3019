"""How many bytes of patches and per-example gradients a fit holds at a time, beside its sums."""

from dataclasses import dataclass

from infoform.curvature.dimensions import Dimensions

WAITING_SHARE_OF_CHUNK = 8  # one part in so many of a fit's chunk is for the rank-one gradients of each layer that wait
WAITING_ROWS = 256  # waiting gradients that are enough for products near full speed
WAITING_BYTES = 2**20  # that waiting gradients may take in any case, however many they are
SHARED_BYTES = 8 * 2**20  # for patches and gradients of shared weights at least, and
SHARED_SHARE_OF_MODEL = 2 / 3  # of the model's own bytes where that is more: no more than a gradient pass takes
ALONE_BYTES = 4 * 2**20  # at most, where the diagonal is all that is wanted: ∇ then stays in the processor's cache


@dataclass(frozen=True)
class ChunkLimits:
    """The limits of a fit."""

    chunk: int  # bytes of patches and gradients that are held at a time
    shared: int  # bytes of the chunk for weights that an example uses more than once
    single: bool  # whether an example has one Fisher vector, so that gradients of several batches may wait together

    @classmethod
    def of(cls, chunk: int, *, model_bytes: int, single: bool) -> "ChunkLimits":
        """Return the limits for a model of so many bytes."""
        return cls(chunk, shared_limit(chunk, model_bytes), single)

    def waiting_bytes(self, size: Dimensions) -> int:
        """Return the bytes of rank-one gradients of a layer that wait for later batches."""
        row = _row_bytes(size)
        return row * waiting_rows(row, self.chunk) if size.outer and self.single else 0

    def working_bytes(self, size: Dimensions, *, examples: int) -> int:
        """Return about the bytes of patches and gradients of a layer in hand, copies included, for such batches."""
        if size.outer:  # squares, and the factors of the residual
            row = _row_bytes(size)
            return 2 * (self.waiting_bytes(size) if self.single else row * min(examples, max(1, self.chunk // row)))
        item = size.dtype.itemsize
        patches, gradient = item * size.groups * size.uses * size.inputs, item * size.weights
        return (2 * patches + 3 * gradient) * min(examples, max(1, self.shared // (patches + gradient)))


def waiting_rows(size: int, limit: int) -> int:
    """Return how many rank-one gradients, of so many bytes each, wait for those of later batches in a layer."""
    return max(1, min(limit // WAITING_SHARE_OF_CHUNK, max(WAITING_BYTES, WAITING_ROWS * size)) // size)


def shared_limit(limit: int, model_bytes: int) -> int:
    """Return how many bytes of patches and gradients of shared weights are held at a time."""
    return min(limit, max(SHARED_BYTES, int(model_bytes * SHARED_SHARE_OF_MODEL)))


def _row_bytes(size: Dimensions) -> int:
    return size.dtype.itemsize * (size.inputs + size.outputs)

"""Leading eigenvectors of a second moment M that is never held: M Ω, summed over the data, tells enough of it.

With an orthonormal random Ω (n, c) and Y = M Ω, Nyström's M ≈ Y (ΩᵀY)⁻¹ Yᵀ is exact where M has rank c, and close
where its eigenvalues fall off (Halko, Martinsson, Tropp 2011; Tropp et al. 2017). Its eigenvectors are those of the
tall matrix Y (ΩᵀY)^(-1/2): no n × n matrix is formed, and nothing larger than c × c decomposed.
"""

import zlib

import torch
from torch import Tensor

from infoform.common.float64 import in_double
from infoform.curvature.eigenbasis import check_moment

EXACT_LIMIT = 128  # inputs or outputs of a layer up to which a second moment is summed whole
OVERSAMPLING = 16  # columns of Ω beyond those that are kept


def random_columns(size: int, *, columns: int, name: str, seed: int) -> Tensor:  # (n, c)
    """Return orthonormal random columns; they depend on the seed and the layer alone, not on the data's batches."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}:{name}:{size}".encode()))  # of which 32 bits count
    normal = torch.randn(size, columns, dtype=torch.float64, generator=generator)
    basis: Tensor = torch.linalg.qr(normal).Q
    return basis


def nystrom(
    sketch: Tensor, vectors: Tensor, *, columns: int, name: str
) -> tuple[Tensor, Tensor]:  # (n, c), (n, c) -> (k,), (n, k)
    """Return leading eigenpairs of M from Y = M Ω and Ω; fewer than asked where M has a lower rank."""
    scale = check_moment(sketch, name=name)
    if scale == 0:
        return sketch.new_zeros(columns), vectors[:, :columns].contiguous()
    tall, test = in_double(sketch) / scale, in_double(vectors)
    core = test.T @ tall
    values, rotation = torch.linalg.eigh(core.add(core.T).div_(2))
    kept = values > values.max() * torch.finfo(sketch.dtype).eps * len(values)  # the rest is rounding of the sums
    half = tall @ (rotation[:, kept] / values[kept].sqrt())  # (n, r): half halfᵀ ≈ M
    squares, turns = torch.linalg.eigh(half.T @ half)
    leading = half @ turns.flip(1)[:, :columns] / squares.flip(0)[:columns].sqrt()
    basis: Tensor = torch.linalg.qr(leading).Q  # which they are already, up to rounding
    values = squares.flip(0)[:columns] * scale
    return values.to(sketch), basis.to(sketch).contiguous()


def is_sketched(size: int, columns: int) -> bool:
    """Whether so many leading eigenvectors of a moment of this size come from a sketch of it."""
    return size > EXACT_LIMIT and columns < size


def sketch_width(size: int, columns: int) -> int:
    """Return the columns c of Ω where so many eigenvectors of a moment of this size are kept."""
    return min(size, columns + OVERSAMPLING)

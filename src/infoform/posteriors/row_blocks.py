"""Precisions that are independent over output rows: R_g = diag(D_g) + W V Wᵀ, with W shared by all rows.

The diagonal part of a posterior plus its prior. With B_g = D_g^(-1/2) W V^(1/2) and B_gᵀB_g = Q diag(k) Qᵀ (p × p):

    R_g^(-1) = F_g F_gᵀ,    F_g = D_g^(-1/2) (I + B_g B_gᵀ)^(-1/2),    (I + B_g B_gᵀ)^(-p) = I − B_g M_g B_gᵀ

with M_g (p × p) for p = 1/2 and 1. Without W all this is elementwise.

Variances aᵀ R_g⁻¹ a are not computed as aᵀ D_g⁻¹ a less what W takes: where W V Wᵀ is far stiffer than D_g, as the
activation prior is along the inputs of the data, both are many magnitudes larger than what is left. With
U = W V^(1/2), any c, r = a − U c and h = Uᵀ D_g⁻¹ r − c,

    R_g⁻¹ a = D_g⁻¹ r − D_g⁻¹ U M_g h,    aᵀ R_g⁻¹ a = rᵀ D_g⁻¹ r + cᵀ c − hᵀ M_g h

and for the c that makes the first two terms smallest for the mean D over rows, h is next to nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from infoform.common.matmul import rows_times
from infoform.curvature.eigenbasis import SquaredWeights, weighted_gram
from infoform.posteriors.base import power
from infoform.priors import LayerPrior

PART = 2**18  # numbers that are held in float64 at a time
STIFF = 1e5  # k from which Jacobians are split before they are multiplied: float32 would lose more than two digits
STIFF_GRAM = 1e8  # k from which float64 would lose more than half of its digits in `gram`


def row_covariance(variances: Tensor, outputs: Tensor) -> Tensor:  # (N, G), (N, C, G) -> (N, C, C)
    """Return Σ_g v_g g_c g_d: the covariance of outputs whose rows are independent."""
    return (outputs * variances.unsqueeze(1)) @ outputs.mT


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """R = blockdiag(R_g); a weight with D = 0 has no precision and is held fixed."""

    diagonal: Tensor  # D (G, A)
    prior: LayerPrior

    def transform(self, x: Tensor) -> Tensor:  # (..., G, A)
        """Return F x, with F Fᵀ = R⁻¹."""
        return self.without_shared(self.root * x, 0)

    def solve(self, x: Tensor) -> Tensor:
        """Return R⁻¹ x."""
        return self.without_shared(self.inverse * x, 1)

    def without_shared(self, x: Tensor, which: int) -> Tensor:  # (..., G, A), overwritten
        """Return x − D⁻¹ W V^(1/2) M V^(1/2) Wᵀ x, with M for F or for R⁻¹ (0 or 1)."""
        if self.factor is None:
            return x
        return x.addcmul_(self.inverse, self.middle(x @ self.factor, which) @ self.factor.T, value=-1)

    def middle(self, z: Tensor, which: int) -> Tensor:  # (..., G, p)
        """Return M_g z_g for every row."""
        return (z.unsqueeze(-2) @ self._middles[which]).squeeze(-2)

    def quadratic_form(self, x: Tensor) -> Tensor:  # (..., G, A) -> (...)
        """Return xᵀ R x."""
        total = (self.diagonal * x**2).sum((-2, -1))
        return total if self.factor is None else total + ((x @ self.factor) ** 2).sum((-2, -1))

    def row_variance(self, inputs: Tensor) -> Tensor:  # (N, A) -> (N, G)
        """Return aᵀ R_g⁻¹ a for every example and row."""
        if self.factor is None:
            return rows_times(inputs**2, self.inverse)
        rest, along = self.split(inputs)
        variance = rows_times(rest**2, self.inverse) + along.square().sum(1, keepdim=True)
        spread = rest.unsqueeze(1) * self.factor.T  # (N, p, A)
        inner = rows_times(self.inverse, spread.flatten(0, 1))  # by rows, as the product with L_g wants it
        taken = (inner.view(inner.shape[0], *spread.shape[:2]) - along) @ self._whitener  # (G, N, p)
        norms: Tensor = torch.linalg.vector_norm(taken, dim=2)
        return variance - norms.square_().T

    def covariance(self, jacobians: Tensor) -> Tensor:  # (N, C, G, A) -> (N, C, C)
        """Return J_c R⁻¹ J_dᵀ."""
        if self.factor is None or self.stiffness <= STIFF:
            return jacobians.flatten(2) @ self.solve(jacobians).flatten(2).mT
        rest, along = self.split(jacobians)
        scaled = self.inverse * rest
        taken = (scaled @ self.factor - along).unsqueeze(-2) @ self._whitener  # (N, C, G, 1, p)
        covariance = rest.flatten(2) @ scaled.flatten(2).mT + along.flatten(2) @ along.flatten(2).mT
        return covariance - taken.flatten(2) @ taken.flatten(2).mT

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:  # (..., A) -> (..., A), (..., p)
        """Return r and c with x = r + W V^(1/2) c, see above; r is exact to the last digits, however small it is."""
        assert self.factor is not None
        exact = x.double()
        along = (exact @ self._along).to(x.dtype)
        return (exact - along.double() @ self.factor.double().T).to(x.dtype), along

    @cached_property
    def _along(self) -> Tensor:  # (A, p): what an input is multiplied with for its c, in float64
        assert self.factor is not None
        factor, weights = self.factor.double(), (self.root.double() ** 2).mean(0).unsqueeze(1)  # (A, 1)
        # least squares by QR: the normal equations would lose what is small beside the stiff directions
        columns = torch.cat([weights.sqrt() * factor, torch.eye(factor.shape[1]).to(factor)])
        q, r = torch.linalg.qr(columns)
        solved: Tensor = torch.linalg.solve_triangular(r, q[: len(factor)].T, upper=True)
        return (solved * weights.sqrt().T).T

    @cached_property
    def stiffness(self) -> float:
        """Return the largest k: how much stiffer W V Wᵀ is than D along some direction of a row."""
        return 0.0 if self.factor is None else float(self._spectrum[0].max())

    def log_det(self) -> Tensor:
        parts = (part.double() for part in self.diagonal.flatten().split(PART))  # whole, fresh pages cost most
        total = torch.stack([torch.where(part > 0, part, 1).log_().sum() for part in parts]).sum()
        return total if self.factor is None else total + self._spectrum[0].log1p().sum()

    def diagonal_of(self) -> Tensor:  # (G, A)
        """Return the diagonal of R."""
        return self.diagonal if self.factor is None else self.diagonal + self.factor.square().sum(1)

    def dense(self) -> Tensor:  # (G * A, G * A)
        dense = self.diagonal.flatten().diag()
        if self.factor is None:
            return dense
        eye = torch.eye(self.diagonal.shape[0], dtype=dense.dtype, device=dense.device)
        return dense + torch.kron(eye, self.factor @ self.factor.T)

    def gram(
        self,
        scale: Tensor | None,
        input_vectors: Tensor,
        gradient_vectors: Tensor,
        rows: Tensor,
        columns: Tensor,
        shared: Tensor | None = None,
    ) -> Tensor:  # (G, A), (A, a), (G, g), (K,), (K,) -> (K, K)
        """Return U_Tᵀ S R⁻¹ S U_T, in float64: these few numbers decide over all others.

        `shared` is `row_shared(scale, input_vectors)`, where it is at hand.
        """
        if self.stiffness > STIFF_GRAM:
            return self._gram_of_roots(scale, input_vectors, gradient_vectors, rows, columns)
        weights = SquaredWeights(self.root, scale)
        input_vectors, gradient_vectors = input_vectors.double(), gradient_vectors.double()
        gram = weighted_gram(weights, input_vectors, gradient_vectors, rows, columns)
        if self.factor is None:
            return gram
        shared = self.row_shared(scale, input_vectors) if shared is None else shared
        whitened = (self._whitener64.mT @ shared).permute(2, 0, 1).contiguous()  # (a, G, p)
        step = max(1, 2**22 // (len(rows) * whitened.shape[2]))
        for start in range(0, whitened.shape[1], step):
            part = slice(start, start + step)
            by_pair = gradient_vectors[part].T.index_select(0, rows).unsqueeze(2)  # (K, chunk, 1)
            picked = (whitened[:, part].index_select(0, columns) * by_pair).flatten(1)
            gram.addmm_(picked, picked.T, alpha=-1)
        return gram

    def _gram_of_roots(
        self, scale: Tensor | None, input_vectors: Tensor, gradient_vectors: Tensor, rows: Tensor, columns: Tensor
    ) -> Tensor:  # (K, K)
        """Return the same as a sum of squares, Σ_g u_k u_l Y_gᵀ Y_g, Y_g = F_gᵀ S_g U_A: slower, and cannot cancel."""
        assert self.factor is not None
        values, vectors = self._spectrum
        grown = (1 + values).sqrt()
        half = vectors / (grown * (grown + 1)).unsqueeze(1) @ vectors.mT  # M for F, in float64
        root, factor, gradient_vectors = self.root.double(), self.factor.double(), gradient_vectors.double()
        scaled = root if scale is None else root * scale.double()  # (G, A)
        gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=root.device)
        step = max(1, 2**22 // (input_vectors.numel() + len(rows) ** 2))
        for start in range(0, len(root), step):
            part = slice(start, start + step)
            y = scaled[part].unsqueeze(2) * input_vectors.double()  # (chunk, A, a)
            shared = root[part].unsqueeze(2) * factor  # (chunk, A, p)
            y -= shared @ (half[part] @ (shared.mT @ y))
            inner = (y.mT @ y)[:, columns][:, :, columns]  # (chunk, K, K)
            by_pair = gradient_vectors[part][:, rows]  # (chunk, K)
            gram += torch.einsum("gk,gl,gkl->kl", by_pair, by_pair, inner)
        return gram

    def row_shared(self, scale: Tensor | None, input_vectors: Tensor) -> Tensor:  # (G, A), (A, a) -> (G, p, a)
        """Return V^(1/2) Wᵀ D_g⁻¹ S_g u_j for every row and column, in float64: what the two low ranks share."""
        assert self.factor is not None
        factor = self.factor.double()
        spread = factor.unsqueeze(2) * input_vectors.double().unsqueeze(1)  # (A, p, a)
        product = SquaredWeights(self.root, scale).times(spread.flatten(1), times=1)
        return product.view(-1, *spread.shape[1:])

    @property
    def half_middle(self) -> Tensor:  # (G, p, p)
        """Return M for F."""
        return self._middles[0]

    def solved_shared(self, shared: Tensor) -> Tensor:  # (G, p, a)
        """Return M (for R⁻¹) times `row_shared`."""
        return self._middles[1] @ shared.to(self.diagonal.dtype)

    def whitened_shared(self, shared: Tensor) -> Tensor:  # (G, p, a)
        """Return Lᵀ (L Lᵀ = M for R⁻¹) times `row_shared`."""
        return self._whitener.mT @ shared.to(self.diagonal.dtype)

    def taken(self, whitened_shared: Tensor) -> Tensor:  # (G, p, a) -> (G, p, p + a)
        """Return [L, L Lᵀ V^(1/2) Wᵀ D⁻¹ S U_A] for every row, from `whitened_shared`: see inf/jacobians.py."""
        return torch.cat([self._whitener, self._whitener @ whitened_shared], dim=2)

    @cached_property
    def root(self) -> Tensor:  # D^(-1/2) (G, A)
        root = torch.empty_like(self.diagonal)
        step = max(1, PART // root.shape[1])
        for part, of in zip(root.split(step), self.diagonal.split(step), strict=True):  # whole, fresh pages cost most
            part.copy_(power(of, -0.5))
        return root

    @cached_property
    def inverse(self) -> Tensor:  # D^(-1) (G, A)
        return self.root.square()

    def scaled_inverse(self, scale: Tensor | None) -> Tensor:  # S D^(-1) (G, A)
        return self.inverse if scale is None else self.inverse * scale

    @cached_property
    def factor(self) -> Tensor | None:  # W V^(1/2) (A, p)
        if self.prior.vectors is None or self.prior.values is None:
            return None
        return self.prior.vectors.to(self.diagonal.dtype) * self.prior.values.sqrt().to(self.diagonal.dtype)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:  # k (G, p), Q (G, p, p), in float64
        assert self.factor is not None
        factor = self.factor.double()
        size = factor.shape[1]
        lower = torch.tril_indices(size, size, device=factor.device)
        grams = self.root.new_zeros(len(self.root), size, size, dtype=torch.float64)
        grams[:, lower[0], lower[1]] = SquaredWeights(self.root).times(factor[:, lower[0]] * factor[:, lower[1]])
        values, vectors = torch.linalg.eigh(grams, UPLO="L")
        return values.clamp_min(0), vectors

    @cached_property
    def _whitener64(self) -> Tensor:  # L = Q (1 + k)^(-1/2) (G, p, p), in float64
        values, vectors = self._spectrum
        return vectors / (1 + values).sqrt().unsqueeze(1)

    @cached_property
    def _whitener(self) -> Tensor:
        return self._whitener64.to(self.diagonal.dtype)

    @cached_property
    def _middles(self) -> tuple[Tensor, Tensor]:  # (G, p, p) each
        """Return Q diag((1 − (1+k)^(-p)) / k) Qᵀ for p = 1/2 and 1, written so that nothing cancels as k goes to 0."""
        values, vectors = self._spectrum
        grown = (1 + values).sqrt()
        half = vectors / (grown * (grown + 1)).unsqueeze(1) @ vectors.mT
        one = self._whitener64 @ self._whitener64.mT
        return half.to(self.diagonal.dtype), one.to(self.diagonal.dtype)

"""Per-example gradients ∇ (N, G, A) of one layer, and the sums of their products that the curvature is made of.

Where the weight is used once an example (S = 1), ∇ = g aᵀ is never formed: Σ ∇ᵀ∇ = Σ |g|² a aᵀ, Σ ∇² = (g²)ᵀ a².
Elsewhere ∇ = Σ_s g_s a_sᵀ is formed, or products are taken through its factors, as is cheaper.
"""

from infoform.fitting.per_example_gradients.base import Gradients, Projection
from infoform.fitting.per_example_gradients.outer import AT_ONCE, OuterGradients
from infoform.fitting.per_example_gradients.rows import RowGradients
from infoform.fitting.per_example_gradients.shared import FEW, Formed, Inputs, SharedGradients, Unfolded

__all__ = [
    "AT_ONCE",
    "FEW",
    "Formed",
    "Gradients",
    "Inputs",
    "OuterGradients",
    "Projection",
    "RowGradients",
    "SharedGradients",
    "Unfolded",
]

"""Variances of a layer against exact arithmetic (80 digits), over N, τ, scales of inputs, dtypes and data."""

import itertools
import sys
from typing import Any

import torch
from torch import nn

from infoform import Laplace

from ..common import ROOT
from . import claim

sys.path.insert(0, str(ROOT / "tests"))  # the exact arithmetic is that of the tests
from exact import exact_precision, exact_variances

BOUNDS = {torch.float64: 1e-7, torch.float32: 5e-3}


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return the largest relative error for every dtype and structure, and how many variances are not positive."""
    counts, taus = ((1.0, 1e6), (1e-7, 1.0)) if quick else ((1.0, 1e3, 1e6), (1e-7, 1e-4, 1.0, 1e4))
    scales, examples = ((1.0, 1e5), (2,)) if quick else ((1e-3, 1.0, 1e3, 1e5), (2, 50))
    rows, bad, total = [], 0, 0
    for dtype, structure, prior in itertools.product(BOUNDS, ("diag", "inf"), ("isotropic", "activation")):
        worst, where = 0.0, ""
        for count, tau, scale, number in itertools.product(counts, taus, scales, examples):
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).to(dtype)
            x, y = (scale * torch.randn(number, 3)).to(dtype), torch.randn(number, 1).to(dtype)
            laplace = Laplace(model, "regression", structure=structure, prior=prior).fit([(x, y)], progress=False)
            laplace.prior, laplace.num_data = laplace.prior.with_precision(tau), count
            layer: Any = laplace.posterior().layers["0"]
            new = torch.cat([x[:2], (scale * torch.randn(3, 3)).to(dtype)])
            inputs = torch.cat([new, torch.ones(5, 1, dtype=dtype)], dim=1)
            first = torch.eye(3, dtype=dtype)[0].expand(5, 1, 3)
            jacobians = torch.einsum("ncg,na->ncga", first, inputs)
            expected = exact_variances(exact_precision(layer), jacobians.flatten(0, 1).flatten(1))
            for found in (
                layer.outer_covariance(inputs, first).flatten(),
                layer.covariance(jacobians).flatten(),
                layer.output_covariance(inputs).variance[:, 0],
            ):
                error = float(((found.double() - expected) / expected).abs().max())
                bad, total = bad + int((found <= 0).sum()), total + len(found)
                if error > worst:
                    worst, where = error, f"N {count:g}, τ {tau:g}, inputs × {scale:g}, {number} examples"
        rows.append({"dtype": str(dtype), "structure": structure, "prior": prior, "worst": worst, "where": where})
    claims = [claim("every variance is positive", bad == 0, f"{total - bad:,} of {total:,}")]
    for dtype, bound in BOUNDS.items():
        worst = max(row["worst"] for row in rows if row["dtype"] == str(dtype))
        claims.append(claim(f"relative error in {dtype} below {bound:g}", worst < bound, f"at most {worst:.1e}"))
    return {"claims": claims, "rows": rows}

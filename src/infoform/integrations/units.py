"""Predictions of standardised targets in the units of the data: y = shift + scale · z, output by output."""

from dataclasses import replace

from torch import Tensor

from infoform.prediction import Prediction


def in_units(prediction: Prediction, *, scale: Tensor, shift: Tensor) -> Prediction:  # (C,), (C,)
    """Return the prediction of y = shift + scale · z from that of z.

    Variances grow by scale², the entropy by Σ log scale; what the target tells about the weights stays as it is.
    """
    assert prediction.mean is not None
    scale, shift = scale.to(prediction.mean), shift.to(prediction.mean)
    samples = prediction.samples
    return replace(
        prediction,
        mean=prediction.mean * scale + shift,
        plain=prediction.plain * scale + shift,
        epistemic=prediction.epistemic * scale**2,
        aleatoric=prediction.aleatoric * scale**2,
        entropy=prediction.entropy + scale.log().sum(),
        samples=None if samples is None else samples * scale + shift,
        conformal=None if prediction.conformal is None else prediction.conformal.scaled(scale),
    )

"""One forward pass: mean and covariance of the outputs where the last layer alone has a posterior.

    f = W a,    Cov(f) from the layer's inputs a alone (`LayerPosterior.output_covariance`)

The layer is the last one if the network returns what it puts out (network/last_layer.py); that is looked at in every
batch. Nothing is sent back, and no N × C × C numbers are held where there are many outputs.
"""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from infoform.likelihoods.positions import positions_of
from infoform.network.batches import Batch
from infoform.network.last_layer import plain_outputs, watching

if TYPE_CHECKING:
    from infoform.predicting.predictor import Predictor


def outputs_and_inputs(predictor: "Predictor", batch: Batch) -> tuple[Tensor, Tensor] | None:  # -> (N, *P, C), (R, A)
    """Return the network's outputs and the inputs of its last layer, from one forward pass.

    Args:
        predictor: the model, and a posterior over one of its layers.
        batch: inputs of N examples.

    Returns:
        The outputs, and the inputs of every row of them; None where the layer with a posterior is not the last, or is
        used more than once for a row.
    """
    (name,) = predictor.posterior.layers
    layer = predictor.layers[name]
    if layer.rule.sparse or layer.rule.forms:
        return None
    with watching({name: layer}) as watch:
        outputs = predictor.likelihood.arrange_outputs(plain_outputs(predictor.model, batch))
        call = watch.last_call(outputs)
    if call is None or outputs.shape[-1] != layer.shape[0]:
        return None
    inputs = layer.rule.inputs(call.module, call.inputs)  # (H, N, S, A)
    places = math.prod(positions_of(outputs))  # the layer's positions, in the order of the outputs' (last_layer.py)
    if len(inputs) != 1 or tuple(inputs.shape[1:3]) != (len(outputs), places):
        return None
    return outputs, inputs[0].flatten(0, 1)

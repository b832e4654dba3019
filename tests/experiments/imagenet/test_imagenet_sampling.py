import torch
from torch import nn
from torch.func import functional_call
from torch.testing import assert_close

import infoform
from infoform.experiments.imagenet.sampling import plain_outputs, sampled_outputs


def fitted() -> tuple[infoform.Laplace, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()
    x = torch.randn(10, 3, 6, 6)
    return infoform.Laplace(model, "classification").fit([x], progress=False), x


def test_sampled_outputs_are_those_of_networks_with_the_sampled_weights() -> None:
    laplace, x = fitted()
    posterior = laplace.posterior(prior_precision=10.0)
    found = sampled_outputs(laplace, posterior, x, samples=3, seed=4)
    generator = torch.Generator().manual_seed(4)
    for outputs in found:
        weights = laplace.weights({name: one[0] for name, one in posterior.sample(1, generator=generator).items()})
        with torch.no_grad():
            assert_close(outputs, functional_call(laplace.model, weights, (x,)))
    assert_close(sampled_outputs(laplace, posterior, x, samples=3, seed=4), found)


def test_linear_outputs_are_a_first_order_expansion() -> None:
    laplace, x = fitted()
    precise = laplace.posterior(prior_precision=1e8)  # so close to the trained weights that both agree
    plain = plain_outputs(laplace.model, x)
    exact, linear = (sampled_outputs(laplace, precise, x, samples=2, seed=0, linear=flag) for flag in (False, True))
    assert float((exact - plain).abs().max()) > 1e-5
    assert_close(linear, exact, rtol=1e-3, atol=1e-6)
    wide = laplace.posterior(prior_precision=1e6)
    drawn = sampled_outputs(laplace, wide, x, samples=1, seed=0, linear=True)
    for name, parameter in laplace.model.named_parameters():  # J (θ − θ*) by backward differentiation
        assert parameter.grad is None, name
    generator = torch.Generator().manual_seed(0)
    deviation = {name: one[0] for name, one in wide.sample(1, generator=generator).items()}
    weights = laplace.weights(deviation)
    trained = {name: value.detach() for name, value in laplace.model.named_parameters() if name in weights}
    jacobian = torch.func.jacrev(lambda given: functional_call(laplace.model, given, (x,)))(trained)
    moved = sum((jacobian[name].flatten(2) @ (weights[name] - trained[name]).flatten()) for name in trained)
    assert_close(drawn[0], plain + moved, rtol=1e-4, atol=1e-5)

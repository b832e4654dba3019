"""Why do networks with sampled weights (mc) tell unknown inputs apart otherwise than the linearised one (linear-mc)?

    python -m benchmarks.mc_or_linear            # digits and MNIST; writes benchmarks/results/mc_or_linear.json
    python -m benchmarks.mc_or_linear digits     # one of them; the other's results are kept
    python -m benchmarks.mc_or_linear --page     # writes docs/mc-or-linear.md from it, runs nothing

MNIST and notMNIST are read from the folder INFOFORM_DATA. A network of ReLUs and max-pooling with its gates held as
the trained weights set them (which unit is on, which pixel wins) is a product of its layers. With δ_l the deviation of
layer l, that gives four networks from the same draws, each with or without two effects:

                                 gates of the trained network          gates of the sampled network
    layers' effects added up     linear-mc: f + Σ_l J_l δ_l            apart: f + Σ_l (f(θ + δ_l) − f)
    layers moved together        gated: f(θ + δ), gates held           mc: f(θ + δ)

`gated` has the mean f and a covariance that is never smaller than the linear one: its further terms are products of
independent δ_l and uncorrelated with the linear ones. So whatever moves the mean of mc is due to gates.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from benchmarks.common import command_line, laplace_of, read_results, rounded, versions, write_page, write_results
from benchmarks.held_gates import Flips, Trace, displaced, forward, record, tangent
from benchmarks.mc_or_linear_page import GAUSSIAN_DRAWS, MORE, page
from benchmarks.predictives import batches
from benchmarks.predictives_tasks import Task
from benchmarks.predictives_tasks import digits as digits_tasks
from benchmarks.small_lenet import mnist as mnist_tasks
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.common.provenance import peak_memory
from infoform.likelihoods import GaussianOutputs
from infoform.metrics import ood
from infoform.network.batches import read_inputs
from infoform.predicting.predictor import Predictor

CHUNK = 500  # inputs at a time
WIDER = 10**0.5  # a closer look is taken where mc's NLL is least, and with a prior precision smaller by this


@dataclass(frozen=True)
class Settings:
    """Everything that decides a task's numbers, beside the network and its data."""

    structures: tuple[str, ...]
    precisions: Mapping[str, tuple[float, ...]]  # by prior
    samples: int
    prior_rank: int
    basis_size: int | None
    known: int  # test inputs, at most
    unknown: int
    closed_form: Mapping[str, tuple[float, ...]]  # where `linear` is judged as well, which is dear
    seed: int = 0


def grid(first: float, last: float, step: float) -> tuple[float, ...]:
    count = round((last - first) / step) + 1
    return tuple(float(f"{10 ** (first + step * index):.4g}") for index in range(count))


DIGITS = {"isotropic": grid(2.5, 3.5, 0.25), "activation": grid(-1, 0.75, 0.25)}
SETTINGS = {
    "digits": Settings(
        structures=("inf", "diag"),
        precisions=DIGITS,
        samples=50,
        prior_rank=8,
        basis_size=None,
        known=1000,
        unknown=1000,
        closed_form=DIGITS,
    ),
    "mnist": Settings(
        structures=("inf",),
        precisions={"isotropic": grid(2.75, 3.75, 0.5), "activation": grid(1, 2.5, 0.25)},
        samples=12,
        prior_rank=64,
        basis_size=64,
        known=800,
        unknown=300,
        closed_form={"activation": grid(1, 1.5, 0.25)},
    ),
}
TASKS: dict[str, Callable[[], Iterator[Task]]] = {"digits": digits_tasks, "mnist": mnist_tasks}


@dataclass(frozen=True)
class Network:
    """A trained network with what its posteriors are built from, and its known and unknown inputs."""

    laplace: infoform.Laplace
    traces: Mapping[str, list[Trace]]  # "known" and "unknown", in chunks
    labels: Tensor  # of known inputs

    @property
    def model(self) -> nn.Module:
        return self.laplace.model

    @property
    def trained(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}

    def outputs(self, which: str) -> Tensor:
        return torch.cat([trace.outputs for trace in self.traces[which]])

    def draws(self, posterior: infoform.Posterior, settings: Settings) -> list[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(settings.seed)
        weights = self.laplace.weights(posterior.sample(settings.samples, generator=generator))
        return [{name: value[index] for name, value in weights.items()} for index in range(settings.samples)]

    def whole(self, draws: list[dict[str, Tensor]], which: str) -> tuple[dict[str, Tensor], float]:
        """Return the outputs (M, N, C) of linear-mc, gated and mc, and mc's share of units flipped."""
        first, flips, trained = next(iter(self.traces[which][0].inputs)), Flips(), self.trained
        found: dict[str, list[Tensor]] = {"linear-mc": [], "gated": [], "mc": []}
        for weights in draws:
            steps = {name: value - trained[name] for name, value in weights.items()}
            run = partial(forward, self.model, weights, start=first)
            traces = self.traces[which]
            found["linear-mc"].append(torch.cat([one.outputs + tangent(self.model, steps, one) for one in traces]))
            found["gated"].append(torch.cat([run(one, held=True) for one in traces]))
            found["mc"].append(torch.cat([run(one, held=False, flips=flips) for one in traces]))
        return {kind: torch.stack(values) for kind, values in found.items()}, flips.share

    def by_layer(self, draws: list[dict[str, Tensor]], which: str) -> dict[str, dict[str, Tensor]]:
        """Return, for every layer moved by itself, the outputs (M, N, C) of linear-mc and mc."""
        found: dict[str, dict[str, Tensor]] = {}
        for layer in self.traces[which][0].inputs:
            own = [{name: value for name, value in one.items() if name.rpartition(".")[0] == layer} for one in draws]
            found[layer] = {}
            for kind, held in (("linear-mc", True), ("mc", False)):  # one layer with its gates held is linear
                parts = [
                    torch.cat([forward(self.model, one, trace, start=layer, held=held) for trace in self.traces[which]])
                    for one in own
                ]
                found[layer][kind] = torch.stack(parts)
        return found

    def displacement(self, draws: list[dict[str, Tensor]], which: str) -> dict[str, dict[str, float]]:
        """Return, by layer, how far the deviations below move its inputs, and what its own deviation makes of that.

        Both are squares, relative to the inputs in the trained network and to what the deviation makes of those.
        """
        sums: dict[str, Tensor] = {}
        for weights in draws:
            steps = {name: value - self.trained[name] for name, value in weights.items()}
            for trace in self.traces[which]:
                for layer, values in displaced(self.model, weights, steps, trace).items():
                    sums[layer] = sums.get(layer, torch.zeros(4).double()) + torch.tensor(values).double()
        return {
            layer: {"moved": float(change / before), "effect": float(through / straight)}
            for layer, (before, change, straight, through) in sums.items()
        }


def probabilities(outputs: Tensor) -> Tensor:  # (M, N, C) -> (N, C)
    return outputs.double().softmax(-1).mean(0)


def judge(known: Tensor, unknown: Tensor, labels: Tensor) -> dict[str, float]:  # both (N, C), probabilities
    entropies = [-torch.special.xlogy(probs, probs).sum(1) for probs in (known, unknown)]
    tiny = torch.finfo(known.dtype).tiny
    return {
        "nll": float(functional.nll_loss(known.clamp_min(tiny).log(), labels)),
        "accuracy": float((known.argmax(1) == labels).double().mean()),
        "auroc": float(ood(*entropies)["auroc"]),
        "entropy_known": float(entropies[0].mean()),
        "entropy_unknown": float(entropies[1].mean()),
    }


def centred(outputs: Tensor) -> Tensor:
    """Take away what the softmax does not see: the same amount in every output."""
    return outputs - outputs.mean(-1, keepdim=True)


def shift_of(drawn: Mapping[str, Tensor], kind: str) -> Tensor:  # -> (N, C)
    """Return a kind's mean less the trained outputs, with linear-mc's noise of the same draws taken away."""
    return (drawn[kind] - drawn["linear-mc"]).mean(0)


def moments(drawn: Mapping[str, Tensor], plain: Tensor) -> dict[str, float]:
    """Return medians of the logits' variances, summed over classes, and means of how the trained winner's logit moves.

    The winner's logit is above the mean of all by `lead`. What `gated` seems to lose of it is noise of the draws.
    """
    winner = plain.argmax(1, keepdim=True)
    result = {"lead": float(centred(plain).gather(1, winner).mean())}
    for kind, outputs in drawn.items():
        result[f"variance {kind}"] = float(centred(outputs).var(0).sum(1).median())
        result[f"lead lost {kind}"] = -float(centred(shift_of(drawn, kind)).gather(1, winner).mean())
    return result


def swapped(drawn: Mapping[str, Tensor], plain: Tensor) -> dict[str, Tensor]:
    """Return mc without its shift of the mean, and linear-mc with that shift, or with mc's spread, but not both.

    `gated` has no shift but that of the noise: what taking it away does there is to be expected of noise alone.
    """
    spread = {kind: centred(drawn[kind]).var(0).sum(1) for kind in ("mc", "linear-mc")}
    scale = (spread["mc"] / spread["linear-mc"]).sqrt()[:, None]
    return {
        "mc, mean f": drawn["mc"] - shift_of(drawn, "mc"),
        "gated, mean f": drawn["gated"] - shift_of(drawn, "gated"),
        "linear-mc, mean of mc": drawn["linear-mc"] + shift_of(drawn, "mc"),
        "linear-mc, spread of mc": plain + scale * (drawn["linear-mc"] - plain),
        "linear-mc, as a Gaussian": as_gaussian(drawn["linear-mc"], plain),
        "mc, as a Gaussian": as_gaussian(drawn["mc"], plain),
    }


def as_gaussian(outputs: Tensor, plain: Tensor) -> Tensor:  # (M, N, C), (N, C) -> (draws, N, C)
    """Draw from the Gaussian that has the covariance of these outputs and the trained network's mean."""
    deviations = outputs - outputs.mean(0)
    noise = torch.randn(GAUSSIAN_DRAWS, len(outputs), generator=torch.Generator().manual_seed(0))
    return plain + torch.einsum("dm,mnc->dnc", noise / math.sqrt(len(outputs) - 1), deviations)


def in_closed_form(laplace: infoform.Laplace, posterior: infoform.Posterior, x: Tensor) -> dict[str, Tensor]:
    """Return the probabilities of `linear` with two of its links, from one pass."""
    batch = read_inputs(x, x.device)
    mean, covariance = Predictor(laplace.model, laplace.layers, laplace.likelihood, posterior).linear(batch)
    outputs = GaussianOutputs(mean, covariance, samples=GAUSSIAN_DRAWS, seed=0)
    links = {"linear": "probit", "linear, link mc": "mc"}
    from_gaussian = laplace.likelihood.from_gaussian
    return {name: from_gaussian(outputs, noise=None, link=link).value.double() for name, link in links.items()}


def measure(
    network: Network, posterior: infoform.Posterior, settings: Settings, *, closed_form: bool
) -> dict[str, Any]:
    """Judge every kind with this posterior; all have the same draws."""
    draws = network.draws(posterior, settings)
    result: dict[str, Any] = {"kinds": {}}
    answers: dict[str, dict[str, Tensor]] = {}
    for which in ("known", "unknown"):
        plain = network.outputs(which)
        drawn, flipped = network.whole(draws, which)
        result[which] = {"flipped": flipped, **moments(drawn, plain)}
        everything = {**drawn, **swapped(drawn, plain)}
        answers[which] = {kind: probabilities(outputs) for kind, outputs in everything.items()}
        if closed_form:
            x = torch.cat([next(iter(trace.inputs.values())) for trace in network.traces[which]])
            answers[which] |= in_closed_form(network.laplace, posterior, x)
    for kind in answers["known"]:
        result["kinds"][kind] = judge(answers["known"][kind], answers["unknown"][kind], network.labels)
    return result


def measure_layers(network: Network, posterior: infoform.Posterior, settings: Settings) -> dict[str, Any]:
    """Judge layers moved one at a time, and `apart`, their effects added up."""
    draws = network.draws(posterior, settings)
    found = {which: network.by_layer(draws, which) for which in ("known", "unknown")}

    def score(outputs: Callable[[str], Tensor]) -> dict[str, float]:
        return judge(probabilities(outputs("known")), probabilities(outputs("unknown")), network.labels)

    result: dict[str, Any] = {}
    for layer in found["known"]:
        result[layer] = {
            kind: score(lambda which, layer=layer, kind=kind: found[which][layer][kind]) for kind in ("linear-mc", "mc")
        }

    def apart(which: str) -> Tensor:
        plain = network.outputs(which)
        return plain + sum(outputs["mc"] - plain for outputs in found[which].values())

    result["apart"] = score(apart)
    for which in ("known", "unknown"):
        result["apart"][f"variance {which}"] = float(centred(apart(which)).var(0).sum(1).median())
    return result


def check(network: Network, posterior: infoform.Posterior, settings: Settings, x: Tensor) -> None:
    """Make sure that the two kinds are those of the library."""
    settings = replace(settings, samples=1)
    some = Network(network.laplace, {"some": [record(network.model, x)]}, network.labels)
    mine, _ = some.whole(some.draws(posterior, settings), "some")
    for kind in ("mc", "linear-mc"):
        theirs = network.laplace.predict(x, kind=kind, samples=1, seed=settings.seed, posterior=posterior).value
        torch.testing.assert_close(mine[kind][0].softmax(1), theirs, rtol=1e-3, atol=1e-4)


def run(task: Task, settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield a row for every structure, prior and prior precision, then those of single layers."""
    sizes = {"prior_rank": settings.prior_rank, "basis_size": settings.basis_size}
    prior = infoform.Activation(strength=1.0)
    laplace = laplace_of(task.model, "classification", structure="inf", prior=prior, **sizes)
    laplace.fit(batches(task.train), progress=False)
    assert task.unknown is not None
    inputs = {"known": task.test[0][: settings.known], "unknown": task.unknown[: settings.unknown]}
    traces = {which: [record(task.model, part) for part in x.split(CHUNK)] for which, x in inputs.items()}
    network = Network(laplace, traces, task.test[1][: settings.known])
    plain = [network.outputs(which).double().softmax(1) for which in inputs]
    base = {"task": task.name, "seed": task.seed}
    norms = {which: [float(x.flatten(1).norm(dim=1).mean()) for x in each_input(traces[which])] for which in inputs}
    yield {**base, "structure": "plain", "kinds": {"plain": judge(*plain, network.labels)}, "input norms": norms}
    for structure, prior in product(settings.structures, settings.precisions):
        build = partial(laplace.posterior, structure=structure, prior=prior)
        choice, losses = {**base, "structure": structure, "prior": prior}, {}
        for tau in settings.precisions[prior]:
            closed_form = tau in settings.closed_form.get(prior, ())
            row = measure(network, build(prior_precision=tau), settings, closed_form=closed_form)
            losses[tau] = row["kinds"]["mc"]["nll"]
            yield {**choice, "prior_precision": tau, **row}
        best = min(losses, key=lambda tau: losses[tau])
        wide = min(losses, key=lambda tau: abs(math.log(tau * WIDER / best)))
        check(network, build(prior_precision=best), settings, inputs["known"][:20])
        for which, tau in {"best": best, "wide": wide}.items():
            draws = network.draws(build(prior_precision=tau), settings)
            moved = {inputs: network.displacement(draws, inputs) for inputs in ("known", "unknown")}
            row = {**choice, "prior_precision": tau, "width": which, "displacement": moved}
            if prior == "activation":  # the isotropic prior leaves little to explain
                row["layers"] = measure_layers(network, build(prior_precision=tau), settings)
            if which == "best" and prior == "activation":
                many = replace(settings, samples=MORE * settings.samples)
                row["more samples"] = measure(network, build(prior_precision=tau), many, closed_form=False)["kinds"]
            yield row


def each_input(traces: list[Trace]) -> list[Tensor]:
    """Return the inputs of every layer with weights, all chunks together."""
    return [torch.cat([trace.inputs[name] for trace in traces]) for name in traces[0].inputs]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], metavar="TASK", help=f"any of {', '.join(TASKS)}")
    options = parser.parse_args()
    if options.page:
        write_page("mc-or-linear", page())
        return
    results = read_results("mc_or_linear", empty={})
    used = versions()
    for name in options.tasks or TASKS:
        begun, busy, rows = time.perf_counter(), time.process_time(), []
        for task in TASKS[name]():
            with torch.no_grad():
                for row in run(task, SETTINGS[name]):
                    rows.append(row)
                    report(row, time.perf_counter() - begun)
        results[name] = {
            "settings": asdict(SETTINGS[name]),
            "versions": used,
            "threads": torch.get_num_threads(),
            "seconds": round(time.perf_counter() - begun),
            "seconds_of_processor": round(time.process_time() - busy),
            "peak_megabytes": (peak_memory() or 0) // 2**20,
            "rows": rows,
        }
        write_results("mc_or_linear", rounded(results))


def report(row: dict[str, Any], seconds: float) -> None:
    choice = [row[key] for key in ("task", "seed", "structure", "prior", "prior_precision", "width") if key in row]
    shown = {kind: f"{it['nll']:.4f} {it['auroc']:.4f}" for kind, it in row.get("kinds", {}).items()}
    print(round(seconds), *choice, shown, flush=True)


if __name__ == "__main__":
    main()

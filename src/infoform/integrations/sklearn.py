"""scikit-learn estimators: `fit` trains a small network and fits its posterior.

The estimators standardise the inputs, and a regressor its targets too; what they return is in the data's own units.
With `tune="validation"`, a classifier's default, they keep a part of the data out of training to choose the prior
precision.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from infoform.common.extras import needed_by
from infoform.integrations.networks import perceptron, train
from infoform.integrations.units import in_units
from infoform.integrations.weight_decay import choose_weight_decay
from infoform.laplace import Laplace
from infoform.posteriors import RankedStructure, get_structure
from infoform.prediction import Prediction

with needed_by("the estimators need"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

Array = NDArray[Any]
NO_CONFORMAL = 'no data were kept out of training for it, as with the estimator\'s tune="validation"'
TUNES = ("auto", "validation", "evidence")
WEIGHT_DECAY = 1e-4  # of a classifier, where none is given
TRIALS = 13  # values of the prior precision that are tried, over ten decades


class _InfEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share; settings are stored as given, and checked by `fit`."""

    def __init__(
        self,
        module: Callable[[int, int], nn.Module] | None = None,
        *,
        hidden: Sequence[int] = (50,),
        epochs: int = 100,
        learning_rate: float = 1e-2,
        weight_decay: float | None = None,
        batch_size: int = 128,
        structure: str = "inf",
        rank: int | float = 100,
        prior: str | None = None,
        tune: str | float = "auto",
        validation_fraction: float = 0.1,
        kind: str = "auto",
        samples: int = 100,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.hidden = hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.structure = structure
        self.rank = rank
        self.prior = prior
        self.tune = tune
        self.validation_fraction = validation_fraction
        self.kind = kind
        self.samples = samples
        self.random_state = random_state

    def predictive(self, X: Any) -> Prediction:
        """Return the whole prediction, with variances and entropies.

        Args:
            X: The inputs, (N, A).

        Returns:
            An `infoform.Prediction`, in the units of the data.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        prediction, _ = self.laplace_.predict_loader(
            self._scaled(x).split(self.batch_size), kind=self.kind, samples=self.samples, progress=False
        )
        return prediction if prediction.conformal is not None else replace(prediction, no_conformal=NO_CONFORMAL)

    def novelty(self, X: Any) -> Array:
        """Return how unlike the training data every input is, from 0 to 1; it takes one forward pass.

        With `tune="validation"` the data that were kept out of training set the scale. Otherwise some of the training
        data do, beside which fresh inputs of the known kind look stranger than they are.

        Args:
            X: The inputs, (N, A).

        Returns:
            The share of known inputs that look less strange, (N,); above 0.95 lie about 5 % of known inputs.

        Raises:
            ValueError: If there were too few examples to tell.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        found = [self.laplace_.novelty(batch).novelty for batch in self._scaled(x).split(self.batch_size)]
        return torch.cat(found).numpy()

    def _fit(self, x: Array, y: Tensor, outputs: int, likelihood: str) -> None:
        """Train the network, fit its posterior and tune that."""
        if not (self.tune in TUNES or (isinstance(self.tune, int | float) and self.tune > 0)):
            raise ValueError(f"tune must be one of {', '.join(TUNES)} or a positive number, got {self.tune!r}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction}.")
        if len(x) < 2:
            raise ValueError(f"a network and its posterior need at least two samples, got {len(x)} sample.")
        self.mean_, scale = x.mean(0), x.std(0)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        inputs = self._scaled(x)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        generator = torch.Generator().manual_seed(seed)
        tune = self.tune
        if tune == "auto":
            tune = "evidence" if y.is_floating_point() else "validation"
        held = max(1, round(self.validation_fraction * len(x))) if tune == "validation" else 0
        order = torch.randperm(len(x), generator=generator)
        learned, kept = order[held:], order[:held]
        with torch.random.fork_rng(devices=[]):

            def trained(places: Tensor, weight_decay: float) -> nn.Module:
                torch.manual_seed(seed)
                factory = self.module or (lambda width, count: perceptron(width, count, self.hidden))
                module = factory(x.shape[1], outputs).double()
                train(
                    module,
                    inputs[places],
                    y[places],
                    epochs=self.epochs,
                    learning_rate=self.learning_rate,
                    weight_decay=weight_decay,
                    batch_size=self.batch_size,
                    generator=generator,
                )
                return module

            self.weight_decay_ = self.weight_decay if self.weight_decay is not None else WEIGHT_DECAY
            if self.weight_decay is None and y.is_floating_point():
                folds = torch.Generator().manual_seed(seed)

                def on_learned(places: Tensor, weight_decay: float) -> nn.Module:
                    return trained(learned[places], weight_decay)

                self.weight_decay_ = choose_weight_decay(on_learned, inputs[learned], y[learned], generator=folds)
                generator.manual_seed(seed)
            self.module_ = trained(learned, self.weight_decay_)
        structure = get_structure(self.structure)
        if isinstance(self.structure, str) and isinstance(structure, RankedStructure):
            structure = structure.with_options(rank=self.rank)
        laplace = Laplace(self.module_, likelihood, structure=structure, prior=self.prior, seed=seed)
        laplace.fit(self._batches(inputs[learned], y[learned]), progress=False)
        if tune == "evidence":
            laplace.tune()
        elif tune == "validation":
            with warnings.catch_warnings():
                # an end of the ten decades searched is the network alone, or the prior: right for hopeless data
                warnings.filterwarnings("ignore", message="the best prior_precision")
                laplace.tune(
                    self._batches(inputs[kept], y[kept]),
                    trials=TRIALS,
                    kind=self.kind,
                    samples=self.samples,
                    progress=False,
                )
        else:
            laplace.prior_precision = float(tune)
        self.laplace_ = laplace

    def _batches(self, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(zip(x.split(self.batch_size), y.split(self.batch_size), strict=True))

    def _scaled(self, x: Array) -> Tensor:
        return torch.from_numpy((x - self.mean_) / self.scale_)


class InfClassifier(ClassifierMixin, _InfEstimator):  # type: ignore[misc]
    """A classifier of scikit-learn with a posterior over the weights of its network.

    After `fit`, `classes_` has the classes, `module_` is the trained network and `laplace_` its posterior.

    Args:
        module: A function `module(inputs, outputs)` that returns a network; if None, linear layers of the sizes
            `hidden` with tanh between them.
        hidden: The sizes of the hidden layers.
        epochs: Epochs of training by AdamW.
        learning_rate: The first learning rate; it falls to zero along a cosine.
        weight_decay: The weight decay of AdamW; None for 1e-4.
        batch_size: Examples in a batch.
        structure: The structure of the posterior, as in `infoform.Laplace`.
        rank: The rank of the posterior, as in `infoform.Laplace`.
        prior: The prior, as in `infoform.Laplace`.
        tune: `"validation"`, `"evidence"`, or a prior precision; `"auto"` is `"validation"`.
        validation_fraction: The share of the data that `tune="validation"` keeps out of training.
        kind: The kind of predictions, as in `Laplace.predict`.
        samples: The number of samples of a prediction.
        random_state: Seed of the first weights, of the order of the data, and of samples.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> from infoform.integrations.sklearn import InfClassifier
        >>> x, y = load_iris(return_X_y=True)
        >>> InfClassifier(hidden=(10,), epochs=20, random_state=0).fit(x, y).predict_proba(x).shape
        (150, 3)
    """

    def fit(self, X: Any, y: Any) -> "InfClassifier":
        """Train the network and fit its posterior.

        Args:
            X: The inputs, (N, A).
            y: The classes, (N,), of any type that scikit-learn takes.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If there is only one class or one example, or an option is out of range.
        """
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least two classes, got one class, {self.classes_[0]!r}.")
        self._fit(x, torch.from_numpy(indices), len(self.classes_), "classification")
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class.

        Args:
            X: The inputs, (N, A).

        Returns:
            The probabilities, (N, C), in the order of `classes_`.
        """
        probs = self.predictive(X).probs
        assert probs is not None
        return probs.numpy()

    def predict(self, X: Any) -> Array:
        """Return the most probable class of every input.

        Args:
            X: The inputs, (N, A).

        Returns:
            The classes, (N,).
        """
        places = self.predict_proba(X).argmax(1)
        return cast(Array, self.classes_[places])


class InfRegressor(RegressorMixin, _InfEstimator):  # type: ignore[misc]
    """A regressor of scikit-learn with a posterior over the weights of its network.

    After `fit`, `module_` is the trained network and `laplace_` its posterior, both for standardised data.

    Args:
        module: A function `module(inputs, outputs)` that returns a network; if None, linear layers of the sizes
            `hidden` with tanh between them.
        hidden: The sizes of the hidden layers.
        epochs: Epochs of training by AdamW.
        learning_rate: The first learning rate; it falls to zero along a cosine.
        weight_decay: The weight decay of AdamW; None to choose 1e-4, 0.3 or 3 by cross-validation (`weight_decay_`).
        batch_size: Examples in a batch.
        structure: The structure of the posterior, as in `infoform.Laplace`.
        rank: The rank of the posterior, as in `infoform.Laplace`.
        prior: The prior, as in `infoform.Laplace`.
        tune: `"validation"`, `"evidence"`, or a prior precision; `"auto"` is `"evidence"`.
        validation_fraction: The share of the data that `tune="validation"` keeps out of training.
        kind: The kind of predictions, as in `Laplace.predict`.
        samples: The number of samples of a prediction.
        random_state: Seed of the first weights, of the order of the data, and of samples.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> from infoform.integrations.sklearn import InfRegressor
        >>> x, y = load_diabetes(return_X_y=True)
        >>> regressor = InfRegressor(hidden=(10,), epochs=20, random_state=0).fit(x, y)
        >>> mean, std = regressor.predict(x, return_std=True)
        >>> mean.shape, std.shape
        ((442,), (442,))
    """

    def fit(self, X: Any, y: Any) -> "InfRegressor":
        """Train the network, and fit its posterior and the noise.

        Args:
            X: The inputs, (N, A).
            y: The targets, (N,) or (N, C).

        Returns:
            The estimator itself.

        Raises:
            ValueError: If there is only one example, or an option is out of range.
        """
        x, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        targets = y[:, None] if y.ndim == 1 else y
        self.flat_target_ = y.ndim == 1
        self.target_mean_, scale = targets.mean(0), targets.std(0)
        self.target_scale_ = np.where(scale > 0, scale, 1.0)
        scaled = torch.from_numpy((targets - self.target_mean_) / self.target_scale_)
        self._fit(x, scaled, targets.shape[1], "regression")
        return self

    def predictive(self, X: Any) -> Prediction:
        """Return the whole prediction, with variances, intervals and entropies, in the units of the targets.

        Args:
            X: The inputs, (N, A).

        Returns:
            An `infoform.Prediction`.
        """
        check_is_fitted(self)
        scale, shift = (torch.from_numpy(values) for values in (self.target_scale_, self.target_mean_))
        return in_units(super().predictive(X), scale=scale, shift=shift)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the mean of the targets and, if asked for, their standard deviation.

        Args:
            X: The inputs, (N, A).
            return_std: Whether to return the standard deviation too, of weights and noise together.

        Returns:
            The means, or means and standard deviations, in the units and the shape of the targets.
        """
        prediction = self.predictive(X)
        assert prediction.mean is not None
        mean, std = prediction.mean.numpy(), prediction.std.numpy()
        if self.flat_target_:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

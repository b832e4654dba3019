"""`compare.json`: ways to be uncertain on the same test data, what they cost, and which one to take."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoform.common.json_values import LEFT_OUT


@dataclass(frozen=True)
class Gain:
    """By how much a score of one method is larger than that of another, and the 95 % interval of a paired bootstrap.

    Args:
        mean: the difference on the test data.
        low: lower end of the interval.
        high: upper end.

    Example:
        ```python
        from infoform.records.compare import Gain
        assert not Gain(-0.05, -0.06, -0.04).may_be_zero
        ```
    """

    mean: float
    low: float
    high: float

    @property
    def may_be_zero(self) -> bool:
        """Return whether the data cannot tell the two methods apart."""
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class Apart:
    """How well one score tells one set of unknown examples from the test data."""

    auroc: float
    fpr95: float
    to_plain: Gain | None = field(default=None, metadata=LEFT_OUT)  # of the AUROC, to the plain network's entropy
    to_temperature: Gain | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Cost:
    """What a method takes; times in plain forward passes over the same examples, None where not measured."""

    predict: float | None
    tune: float | None  # over the validation data
    fit: float | None  # over the training data
    nbytes: int | None  # besides the network


@dataclass(frozen=True)
class ComparedMethod:
    """One method on the test data."""

    name: str
    says: str  # what it is, in a few words
    scores: Mapping[str, float]
    to_plain: Mapping[str, Gain]
    to_temperature: Mapping[str, Gain]
    unknown: Mapping[str, Mapping[str, Apart]]  # by set, by score: "entropy", "mutual_information", "novelty"
    cost: Cost
    settings: Mapping[str, str | float | None]  # what was tuned
    calibrated_ece: float | None = field(default=None, metadata=LEFT_OUT)  # of perfect calibration at this sample size


@dataclass(frozen=True)
class Recommendation:
    """Which method to take, and why."""

    method: str
    reason: str


@dataclass(frozen=True)
class CompareResult:
    """What `infoform.compare` and `infoform compare` found; printed, it is a table.

    Args:
        likelihood: name of the likelihood.
        examples: number of test examples.
        validation_examples: number of examples that methods were tuned on; None where there were none.
        unknown_examples: number of unknown examples, by set.
        plain_seconds: time of one plain forward pass of one example, which costs are counted in.
        resamples: number of bootstrap samples.
        methods: one for each method, the plain network first.
        recommendation: which to take.
        notes: what to know besides, such as methods that were left out.

    Example:
        ```python
        found = infoform.compare(laplace, test_loader, progress=False)
        print(found.recommendation.reason)
        ```
    """

    likelihood: str
    examples: int
    validation_examples: int | None
    unknown_examples: Mapping[str, int]
    plain_seconds: float
    resamples: int
    methods: list[ComparedMethod]
    recommendation: Recommendation
    notes: list[str]

    def method(self, name: str) -> ComparedMethod:
        """Return a method by its name.

        Args:
            name: as in the table.

        Returns:
            What was found of it.

        Raises:
            ValueError: if there is no such method.
        """
        for one in self.methods:
            if one.name == name:
                return one
        raise ValueError(f"there is no method {name!r}; there are {', '.join(one.name for one in self.methods)}.")

    def __str__(self) -> str:
        """Return the tables and the recommendation as text."""
        from infoform.records.compare_table import as_text

        return as_text(self)

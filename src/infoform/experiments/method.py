"""A method of an experiment as a value, and its key in the JSON of a run.

    inf@uint8 activation:16x30 mc validation 0        a Laplace posterior: structure, prior, kind, tuning, network
    swag 0                                            anything else that predicts: its name, network
    network 0, curvature 0, fit                       a stage that methods build on has a key of the same form

A structure may be followed by how it is stored (`@uint8`); a prior by how many directions of each layer's inputs it
knows (`:16`) and by its strength (`x30`). What a key does not say is None here, and the experiment's default there. The
last word numbers the network, in experiments that train several.
"""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

KINDS = ("linear", "mc", "linear-mc")  # as in `Laplace.predict`
TUNINGS = ("validation", "evidence", "search")
_NAME = r"[A-Za-z][\w.-]*"
_KEY = re.compile(
    rf"(?P<name>{_NAME})(?:@(?P<storage>{_NAME}))?"
    rf"(?: (?P<prior>{_NAME})(?::(?P<prior_rank>\d+)(?:x(?P<prior_strength>\d+(?:\.\d+)?(?:e[+-]\d+)?))?)?"
    rf" (?P<kind>{'|'.join(KINDS)}) (?P<tuning>{'|'.join(TUNINGS)}))?"
    r"(?: (?P<network>\d+))?"
)


@dataclass(frozen=True)
class Method:
    """What predicts in an experiment: a Laplace posterior with all that it depends on, or a baseline with its name.

    `key` and `parse` are inverse to each other, for all methods that can be made and all keys that can be read.

    Example:
        >>> method = Method.parse("inf@uint8 activation:16x30 mc validation 0")
        >>> method.name, method.prior_rank, method.network
        ('inf', 16, 0)
        >>> method.of_any_network.key
        'inf@uint8 activation:16x30 mc validation'
    """

    name: str  # of a structure ("inf"), a baseline ("swag") or a stage ("network")
    prior: str | None = None  # of a Laplace posterior; None for everything else, as are storage, kind and tuning
    kind: str | None = None  # of prediction
    tuning: str | None = None  # how τ, or N and τ, were chosen
    storage: str | None = None  # None: as it was fitted
    prior_rank: int | None = None
    prior_strength: float | None = None
    network: int | None = None

    def __post_init__(self) -> None:
        if _read(self.key) != asdict(self):
            raise ValueError(f"a method must have a key that says all of it, got {self.key!r} for {self!r}.")

    @property
    def key(self) -> str:
        """Return the method in words, as the JSON of a run names it."""
        words = [self.name if self.storage is None else f"{self.name}@{self.storage}"]
        if self.prior is not None:
            rank = "" if self.prior_rank is None else f":{self.prior_rank}"
            strength = "" if self.prior_strength is None else f"x{_number(self.prior_strength)}"
            words += [f"{self.prior}{rank}{strength}", str(self.kind), str(self.tuning)]
        if self.network is not None:
            words.append(str(self.network))
        return " ".join(words)

    @classmethod
    def parse(cls, key: str) -> "Method":
        """Return the method of a key.

        Args:
            key: what `key` of the method gives.

        Returns:
            The method.

        Raises:
            ValueError: the text is no key of a method.

        Example:
            >>> Method.parse("swag 2").network
            2
        """
        fields = _read(key)
        if fields is None or (method := cls(**fields)).key != key:
            raise ValueError(
                "a method must read 'STRUCTURE[@STORAGE] PRIOR[:RANK[xSTRENGTH]] KIND TUNING [NETWORK]' or "
                f"'NAME [NETWORK]', its kind one of {', '.join(KINDS)}, its tuning one of {', '.join(TUNINGS)}, "
                f"got {key!r}."
            )
        return method

    @property
    def is_laplace(self) -> bool:
        """Whether it is a Laplace posterior, with a prior, a kind of prediction and a tuning."""
        return self.prior is not None

    def on(self, network: int) -> "Method":
        """Return the same method on one of the networks, by its number.

        Example:
            >>> Method.parse("kfac isotropic mc validation").on(0).key
            'kfac isotropic mc validation 0'
        """
        return replace(self, network=network)

    @property
    def of_any_network(self) -> "Method":
        """Return the method itself, whichever network it was measured on."""
        return replace(self, network=None)


def _read(key: str) -> dict[str, Any] | None:
    """Return the fields of the method that a key names; None where it names none."""
    match = _KEY.fullmatch(key)
    if match is None or (match["storage"] and not match["prior"]):
        return None
    numbers = {"prior_rank": int, "prior_strength": float, "network": int}
    return {
        field: numbers[field](text) if text is not None and field in numbers else text
        for field, text in match.groupdict().items()
    }


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)

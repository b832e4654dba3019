"""Interrupted work goes on only if it is the same work: the one comparison of what was saved with what is asked now.

Whoever saves half-done work saves an identity with it: all that the result depends on, as named values that JSON can
hold. Whoever goes on compares that identity with its own, and refuses in one sentence where they differ.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOT_GIVEN = "not given"  # how a missing value is written
SHOWN = 3  # differences that a sentence names


@dataclass(frozen=True)
class Difference:
    """One value by which earlier work differs from the work that is asked for now."""

    name: str
    earlier: Any  # None where there was none
    now: Any

    def __str__(self) -> str:
        was, now = (NOT_GIVEN if value is None else value for value in (self.earlier, self.now))
        return f"{self.name} was {was}, is {now}"


@dataclass(frozen=True)
class Identity:
    """All that the result of some work depends on, by names for people.

    Args:
        values: named values that JSON can hold; they are compared as JSON gives them back (a tuple is a list), and a
            value that is missing counts as None.

    Example:
        >>> now = Identity({"seed": 1, "samples": 10})
        >>> differences = now.differences({"seed": 0, "samples": 10})
        >>> refusal("'trials.json' is of another search", differences, remedy="remove it")
        "'trials.json' is of another search (seed was 0, is 1); remove it."
    """

    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", json.loads(json.dumps(dict(self.values))))

    def differences(self, earlier: Mapping[str, Any], *, ignored: Collection[str] = ()) -> list[Difference]:
        """Return what differs from an earlier identity.

        Args:
            earlier: the values that were saved.
            ignored: names that may differ.

        Returns:
            One difference for each name, first those in the order of the earlier values, then the new ones; empty
            where it is the same work.
        """
        names = [name for name in {**earlier, **self.values} if name not in ignored]
        pairs = ((name, earlier.get(name), self.values.get(name)) for name in names)
        return [Difference(name, was, now) for name, was, now in pairs if was != now]


def refusal(
    what: str, differences: Sequence[Difference], *, remedy: str, describe: Callable[[Difference], str] = str
) -> str:
    """Return the sentence that refuses to go on.

    Args:
        what: what is there instead ("'trials.json' holds the trials of another search").
        differences: by what it differs; the sentence names the first three.
        remedy: what the user can do.
        describe: how a difference is written.

    Returns:
        One sentence: what is there, by what it differs, and the remedy.
    """
    shown = [describe(difference) for difference in differences[:SHOWN]]
    if len(differences) > SHOWN:
        shown.append(f"and {len(differences) - SHOWN} more")
    return f"{what} ({'; '.join(shown)}); {remedy}."

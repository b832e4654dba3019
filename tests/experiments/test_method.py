"""Keys of methods and methods are inverse to each other."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoform.experiments.method import KINDS, TUNINGS, Method

RESULTS = Path(__file__).parents[2] / "results"
OF_METHODS = ("mnist", "cifar10", "imagenet", "imagenet-efficientnet", "imagenet-resnet50")  # the others have data sets
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]*", fullmatch=True)
NETWORKS = st.none() | st.integers(0, 10**6)


def committed_keys() -> list[str]:
    keys: dict[str, None] = {}
    for name in OF_METHODS:
        run = json.loads((RESULTS / f"{name}.json").read_text())
        keys |= dict.fromkeys([*run["pieces"], *run["settings"]["methods"], *run["settings"].get("repeated", ())])
    return list(keys)


@st.composite
def laplace_methods(draw: st.DrawFn) -> Method:
    rank = draw(st.none() | st.integers(0, 10**6))
    strengths = st.none() | st.floats(0, allow_nan=False, allow_infinity=False).map(abs)
    return Method(
        draw(NAMES),
        draw(NAMES),
        draw(st.sampled_from(KINDS)),
        draw(st.sampled_from(TUNINGS)),
        storage=draw(st.none() | NAMES),
        prior_rank=rank,
        prior_strength=None if rank is None else draw(strengths),
        network=draw(NETWORKS),
    )


@given(laplace_methods() | st.builds(Method, NAMES, network=NETWORKS))
def test_a_method_is_read_back_from_its_key(method: Method) -> None:
    assert Method.parse(method.key) == method
    assert Method.parse(method.of_any_network.key).network is None


@given(st.text() | st.from_regex(r"\w+(@\w+)?( \w+(:\d+(x[\d.e]+)?)? mc search)?( \d+)?", fullmatch=True))
def test_a_text_is_either_the_key_of_its_method_or_refused(text: str) -> None:
    try:
        method = Method.parse(text)
    except ValueError as error:
        assert repr(text) in str(error)  # noqa: PT017
    else:
        assert method.key == text


@pytest.mark.parametrize("key", committed_keys())
def test_every_key_of_the_committed_results_is_read_and_written_as_it_is(key: str) -> None:
    assert Method.parse(key).key == key


def test_a_key_says_all_of_a_method() -> None:
    method = Method.parse("inf@uint8 activation:16x30 mc validation 0")
    assert method == Method(
        "inf", "activation", "mc", "validation", storage="uint8", prior_rank=16, prior_strength=30.0, network=0
    )
    assert method.is_laplace
    assert Method.parse("swag 2") == Method("swag", network=2)
    assert not Method.parse("plain").is_laplace


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "inf", "kind": "mc"},  # without a prior
        {"name": "inf", "prior": "isotropic", "kind": "mc"},
        {"name": "two words"},
        {"name": "inf", "storage": "uint8"},
        {"name": "inf", "prior": "isotropic", "kind": "guess", "tuning": "search"},
        {"name": "inf", "prior": "activation", "kind": "mc", "tuning": "search", "prior_strength": 2.0},
        {"name": "swag", "network": -1},
    ],
)
def test_a_method_that_its_key_would_not_tell_is_refused(wrong: dict[str, str | float]) -> None:
    with pytest.raises(ValueError, match="key that says all of it"):
        Method(**wrong)  # type: ignore[arg-type]

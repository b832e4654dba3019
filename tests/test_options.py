"""Options as objects: they say the same as names and keywords did, and each is checked where it is given."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from infoform.options import Settings
from infoform.posteriors import PRESETS, STRUCTURES, get_structure
from infoform.posteriors.network_posterior import Posterior

EVERYTHING = infoform.FitOptions(statistics="all", fisher="exact", input_rank=3)


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def make_data() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 5).double(), torch.randint(0, 3, (6,))) for _ in range(3)]


def fitted(**options: Any) -> infoform.Laplace:
    return infoform.Laplace(make_model(), "classification", **options).fit(make_data(), progress=False)


def assert_same(one: Posterior, other: Posterior) -> None:
    for name, layer in one.layers.items():
        assert torch.equal(layer.dense(), other.layers[name].dense())


@pytest.mark.parametrize(
    ("keywords", "objects", "told"),
    [
        ({"rank": 5}, {"structure": infoform.Inf(rank=5)}, r"write structure=infoform.Inf\(rank=5\)"),
        (
            {"structure": "kfac", "damping": "exact"},
            {"structure": infoform.Kfac(damping="exact")},
            r"write structure=infoform.Kfac\(damping='exact'\)",
        ),
        (
            {"structure": "inf-paper", "rank": 4},
            {"structure": infoform.get_structure("inf-paper", rank=4)},
            r"write structure=infoform.get_structure\('inf-paper', rank=4\)",
        ),
        (
            {"fisher": "exact", "basis_floor": 0.0},
            {"fit_options": infoform.FitOptions(fisher="exact", basis_floor=0.0)},
            r"write fit_options=infoform.FitOptions\(fisher='exact', basis_floor=0.0\)",
        ),
        ({"prior_rank": 2}, {"prior": infoform.Activation(rank=2)}, r"write prior=infoform.Activation\(rank=2\)"),
        (
            {"structure": "diag", "rank": 5},
            {"structure": "diag"},
            r"nothing for rank, which structure 'diag' does not take",
        ),
    ],
)
def test_keywords_of_earlier_versions_work_and_say_the_new_form(
    keywords: dict[str, Any], objects: dict[str, Any], told: str
) -> None:
    with pytest.warns(DeprecationWarning, match=told) as caught:
        before = fitted(**keywords)
    assert caught[0].filename == __file__  # the warning is at the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*the paper's form as printed")
        now = fitted(**objects)
    assert before.settings.flat() == {**now.settings.flat(), **{k: v for k, v in keywords.items() if k == "rank"}}
    assert_same(before.posterior(), now.posterior())


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"Laplace\(\) got an unexpected keyword argument 'rang'"):
        infoform.Laplace(make_model(), "classification", rang=3)
    with pytest.raises(TypeError, match=r"plan\(\) got an unexpected keyword argument 'rang'"):
        infoform.plan(make_model(), rang=3)


@pytest.mark.parametrize("name", [*STRUCTURES, *PRESETS])
def test_settings_survive_as_plain_values(name: str) -> None:
    settings = Settings(get_structure(name), EVERYTHING, ["head.*"], prior_rank=3, seed=7)
    again = Settings.from_flat(settings.flat())
    assert again.structure == settings.structure
    assert again.structure.label == name
    assert again.flat() == settings.flat()


@pytest.mark.parametrize("name", [*STRUCTURES, *PRESETS])
def test_a_name_and_its_object_are_the_same_structure(name: str) -> None:
    by_name, by_object = fitted(structure=name), fitted(structure=get_structure(name))
    assert by_name.prior.name == by_object.prior.name
    assert_same(by_name.posterior(), by_object.posterior())


@pytest.mark.filterwarnings("ignore:the best prior_precision")
@pytest.mark.parametrize("name", [*STRUCTURES, *PRESETS])
def test_tuning_another_structure_makes_it_the_objects_own(name: str) -> None:
    own = fitted(structure=name, fit_options=EVERYTHING).tune()
    other = fitted(structure="diag", fit_options=EVERYTHING).tune(structure=name)
    assert other.structure == own.structure
    assert other.prior.name == own.prior.name
    assert other.prior_precision == pytest.approx(own.prior_precision, rel=1e-9)
    found = own.tune(make_data(), trials=3, progress=False).trials
    assert other.tune(make_data(), structure=name, trials=3, progress=False).trials == found


def test_tuning_with_another_prior_makes_it_the_objects_own() -> None:
    laplace = fitted(fit_options=EVERYTHING).tune(prior="isotropic")
    assert laplace.prior.name == "isotropic"
    assert laplace.posterior(structure="diag").layers["0"].prior.isotropic


def test_a_posterior_is_built_once_until_a_hyperparameter_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    whole = Posterior.__init__

    def counted(self: Posterior, *arguments: Any, **options: Any) -> None:
        built.append(self)
        whole(self, *arguments, **options)

    laplace = fitted(fit_options=infoform.FitOptions(statistics="all"))
    monkeypatch.setattr(Posterior, "__init__", counted)
    x = make_data()[0][0]
    for _ in range(3):
        for kind in ("linear", "mc", "linear-mc"):
            laplace.predict(x[:1], kind=kind, samples=2)
        laplace.predict_loader([x], progress=False)
        laplace.sample(2)
        laplace.posterior()
    assert len(built) == 1
    changes: list[tuple[str, Any]] = [("prior_precision", 2.0), ("num_data", 50.0), ("prior", infoform.Isotropic(3.0))]
    for count, (name, value) in enumerate(changes, start=2):
        setattr(laplace, name, value)
        for _ in range(2):
            laplace.predict(x)
        assert len(built) == count
    laplace.posterior(prior_precision=7.0)  # another one leaves the object's own as it is
    before = len(built)
    laplace.predict(x)
    assert len(built) == before
    laplace.shrink("100kB")
    laplace.predict(x)
    assert len(built) == before + 1
    laplace.tune()
    laplace.predict(x)
    laplace.predict(x)
    assert len(built) == before + 2
    laplace.fit(make_data(), progress=False)
    laplace.predict(x)
    assert len(built) == before + 3


def test_a_kept_posterior_predicts_what_a_fresh_one_does() -> None:
    laplace = fitted()
    x = make_data()[0][0]
    for precision in (0.5, 5.0, 0.5):
        laplace.prior_precision = precision
        fresh = laplace.predict(x, posterior=laplace.posterior(prior_precision=precision))
        for _ in range(2):
            assert torch.equal(laplace.predict(x).value, fresh.value)

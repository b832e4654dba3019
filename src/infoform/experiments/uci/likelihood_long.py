"""uci-likelihood with networks trained as long as for MC-dropout's published values, to stand beside them."""

from infoform.experiments.uci.likelihood import LikelihoodSettings, UciLikelihood

SETS = ("boston", "yacht", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")  # the quick ones first


class UciLikelihoodLong(UciLikelihood):
    """Test log-likelihood, beside MC-dropout's."""

    name = "uci-likelihood-long"
    summary = "Test log-likelihood by linearised Laplace on nine UCI sets, trained long, beside MC-dropout's."
    reproduces = "nothing; it sets the figure of test log-likelihoods on UCI (supplement) beside other published values"

    def settings(self, *, quick: bool = False, full: bool = False) -> LikelihoodSettings:
        if quick:
            return LikelihoodSettings(sets=("boston", "yacht"), splits=2, trainings=("long",), long_epochs=400)
        if full:
            return LikelihoodSettings(trainings=("long",), long_epochs_large=4000, long_splits_large=20)
        return LikelihoodSettings(sets=SETS, trainings=("long",))


EXPERIMENT = UciLikelihoodLong()

"""`imagenet` with EfficientNet-Lite0, whose every forward pass costs six of MobileNet's."""

from infoform.experiments.imagenet.experiment import ImageNet
from infoform.experiments.imagenet.run import LAST_LAYER, SEARCHED, ImageNetSettings

EXPERIMENT = ImageNet(
    name="imagenet-efficientnet",
    summary="EfficientNet-Lite0, trained on ImageNet, and asked about photographs and about paintings.",
    sizes=ImageNetSettings(
        network="efficientnet",
        methods=(LAST_LAYER, *SEARCHED, "inf activation mc evidence", "inf activation linear-mc validation"),
    ),
)

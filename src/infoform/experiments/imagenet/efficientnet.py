"""`imagenet` with EfficientNet-Lite0, whose every forward pass costs six of MobileNet's."""

from typing import ClassVar

from infoform.experiments.imagenet.experiment import ImageNet
from infoform.experiments.imagenet.run import STRUCTURES, ImageNetSettings

WITHOUT_SEARCH = ("inf activation mc evidence", "inf activation linear-mc validation")


class ImageNetEfficientNet(ImageNet):
    """EfficientNet-Lite0."""

    name: ClassVar[str] = "imagenet-efficientnet"
    network: ClassVar[str] = "efficientnet"
    summary: ClassVar[str] = "EfficientNet-Lite0, trained on ImageNet, and asked about photographs and about paintings."

    def default(self) -> ImageNetSettings:
        return ImageNetSettings(
            network=self.network,
            methods=(*(f"{one} search" for one in STRUCTURES), *WITHOUT_SEARCH),
        )


EXPERIMENT = ImageNetEfficientNet()

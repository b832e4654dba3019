"""`imagenet` with EfficientNet-Lite0, whose every forward pass costs six times MobileNet's: fewer images by default."""

from typing import ClassVar

from infoform.experiments.imagenet import ImageNet
from infoform.experiments.imagenet_run import STRUCTURES, ImageNetSettings


class ImageNetEfficientNet(ImageNet):
    """EfficientNet-Lite0."""

    name: ClassVar[str] = "imagenet-efficientnet"
    network: ClassVar[str] = "efficientnet"
    summary: ClassVar[str] = "EfficientNet-Lite0, trained on ImageNet, and asked about photographs and about paintings."

    def default(self) -> ImageNetSettings:
        return ImageNetSettings(
            network=self.network,
            images=250,
            test=120,
            unknown=60,
            methods=(*(f"{one} validation" for one in STRUCTURES), "inf activation mc evidence"),
            tuning_images=20,
        )


EXPERIMENT = ImageNetEfficientNet()

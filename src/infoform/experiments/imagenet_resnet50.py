"""`imagenet` with ResNet-50: as much as a small machine allows, and the structures that one cheap fit gives."""

from typing import ClassVar

from infoform.experiments.imagenet import ImageNet
from infoform.experiments.imagenet_run import ImageNetSettings


class ImageNetResNet50(ImageNet):
    """ResNet-50, the first version."""

    name: ClassVar[str] = "imagenet-resnet50"
    network: ClassVar[str] = "resnet50"
    summary: ClassVar[str] = "ResNet-50 v1, trained on ImageNet, and asked about photographs and about paintings."

    def default(self) -> ImageNetSettings:
        structures = ("inf activation mc", "diag isotropic mc", "inf isotropic mc")
        return ImageNetSettings(
            network=self.network,
            images=100,
            test=100,
            unknown=50,
            samples=10,
            methods=("inf activation mc evidence", *(f"{one} validation" for one in structures)),
            statistics="needed",
            tuning_images=20,
        )


EXPERIMENT = ImageNetResNet50()

"""`imagenet` with ResNet-50, whose every forward pass costs some hundred of MobileNet's: half of all pictures."""

from typing import ClassVar

from infoform.experiments.imagenet.experiment import ImageNet
from infoform.experiments.imagenet.run import STRUCTURES, ImageNetSettings

SEARCHED = tuple(one for one in STRUCTURES if one != "inf isotropic mc")


class ImageNetResNet50(ImageNet):
    """ResNet-50, the first version."""

    name: ClassVar[str] = "imagenet-resnet50"
    network: ClassVar[str] = "resnet50"
    summary: ClassVar[str] = "ResNet-50 v1, trained on ImageNet, and asked about photographs and about paintings."

    def default(self) -> ImageNetSettings:
        return ImageNetSettings(
            network=self.network,
            images=500,
            test=500,
            unknown=250,
            samples=10,
            methods=(*(f"{one} search" for one in SEARCHED), "inf activation mc evidence"),
            rounds=((100, 10, 1), (20, 25, 2), (5, 100, 5)),
            tuning_images=50,
            autocast="bfloat16",  # .05 s a picture on one core, for .11
        )


EXPERIMENT = ImageNetResNet50()

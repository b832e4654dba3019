"""`imagenet` with ResNet-50, whose every forward pass costs some hundred of MobileNet's: half of all pictures."""

from infoform.experiments.imagenet.experiment import ImageNet
from infoform.experiments.imagenet.run import LAST_LAYER, SEARCHED, ImageNetSettings

EXPERIMENT = ImageNet(
    name="imagenet-resnet50",
    summary="ResNet-50 v1, trained on ImageNet, and asked about photographs and about paintings.",
    sizes=ImageNetSettings(
        network="resnet50",
        images=500,
        test=500,
        unknown=250,
        samples=10,
        methods=(
            LAST_LAYER,
            *(key for key in SEARCHED if key != "inf isotropic mc search"),
            "inf activation mc evidence",
        ),
        autocast="bfloat16",  # .05 s a picture on one core, for .11
    ),
)

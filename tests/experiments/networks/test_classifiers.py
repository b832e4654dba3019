"""The paper's networks, and augmentation against all crops of a picture."""

import torch

from infoform.experiments.networks.classifiers import CROP, augment, central_crop, lenet, small_vgg


def test_the_papers_networks_have_the_papers_sizes() -> None:
    mnist, cifar = [800, 51_200, 3_211_264, 10_240], [4_800, 102_400, 884_736, 73_728, 1_920]
    for build, sizes in ((lenet, mnist), (small_vgg, cifar)):
        weights = [p.numel() for name, p in build().named_parameters() if name.endswith("weight") and p.dim() > 1]
        assert weights == sizes


def test_augmented_pictures_are_crops_flipped_or_not_up_to_contrast_and_brightness() -> None:
    torch.manual_seed(0)
    pictures = torch.rand(20, 3, 32, 32)
    for picture, crop in zip(pictures, augment(pictures), strict=True):
        found = 0
        for flipped in (crop, crop.flip(-1)):
            for top in range(32 - CROP + 1):
                for left in range(32 - CROP + 1):
                    part = picture[:, top : top + CROP, left : left + CROP].flatten()
                    pair = torch.corrcoef(torch.stack([part, flipped.flatten()]))[0, 1]
                    found += bool(pair > 0.99999)
        assert found == 1
    assert torch.equal(central_crop(pictures), pictures[:, :, 4:28, 4:28])

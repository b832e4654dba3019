"""Published costs of posteriors of ImageNet networks, by network (a key of ARCHITECTURES); Lee et al. 2020."""

from collections.abc import Mapping
from typing import NamedTuple


class Numbers(NamedTuple):
    """How many numbers each structure stores."""

    diag: int
    kfac: int
    efb: int
    inf: int  # at rank 100


class Times(NamedTuple):
    """How long each structure takes."""

    diag: float
    kfac: float
    efb: float
    inf: float


# section 5, table `results:sm:complexity:imagenet:all`; its MB are of 2^20 bytes, four for each number
SPACE: Mapping[str, Numbers] = {
    "resnet18": Numbers(11_679_912, 95_013_546, 106_693_458, 12_317_373),
    "resnet50": Numbers(25_503_912, 153_851_562, 179_355_474, 27_614_896),
    "resnet152": Numbers(60_041_384, 389_519_018, 449_560_402, 65_558_402),
    "densenet121": Numbers(7_895_208, 103_094_954, 110_990_162, 9_711_081),
    "densenet161": Numbers(28_461_064, 379_105_514, 407_566_578, 32_329_191),
}
# supplement, table `results:sm:img:complexity1`: milliseconds of a sample of all weights
SAMPLES: Mapping[str, Times] = {
    "resnet18": Times(1.24, 8.23, 9.28, 4.74),
    "resnet50": Times(1.94, 15.47, 16.89, 12.0),
    "resnet152": Times(5.4, 32.08, 35.55, 32.62),
    "densenet121": Times(4.41, 8.92, 10.22, 25.03),
    "densenet161": Times(5.86, 16.48, 18.84, 35.95),
}
# supplement, table `results:sm:img:complexity2`: minutes of the information matrix
FITS: Mapping[str, Times] = {
    "resnet18": Times(30, 120, 165, 165),
    "resnet50": Times(82, 210, 300, 300),
    "resnet152": Times(180, 510, 720, 720),
    "densenet121": Times(100, 360, 465, 465),
    "densenet161": Times(180, 870, 1060, 1060),
}

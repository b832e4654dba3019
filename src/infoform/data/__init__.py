"""Data sets of the experiments; to add one, write a file and a line in `DATA_SETS`.

Files are read from the folder that the environment variable INFOFORM_DATA names, or from `~/.cache/infoform`, where
downloads go. A module is imported only when it is used.
"""

DATA_SETS: dict[str, str] = {  # name -> module
    "uci": "infoform.data.uci",
    "mnist": "infoform.data.mnist",
    "notmnist": "infoform.data.notmnist",
    "cifar10": "infoform.data.cifar10",
    "svhn": "infoform.data.svhn",
    "imagenet": "infoform.data.imagenet",
    "paintings": "infoform.data.paintings",
}

"""Networks that choose among classes: MNIST and CIFAR-10, with what is unknown to them."""

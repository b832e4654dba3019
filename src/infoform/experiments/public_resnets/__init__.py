"""The public CIFAR-10 ResNets: known and unknown pictures, all methods cross-fitted."""

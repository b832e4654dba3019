"""Which score notices unknown inputs best: novelty beside the detectors of pytorch-ood, on the same networks."""

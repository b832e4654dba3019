"""Networks that others trained on ImageNet."""

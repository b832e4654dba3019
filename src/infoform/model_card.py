"""The model card of a posterior: what it is, how it was made, how to load it; written for people, from config.json."""

from collections.abc import Mapping
from typing import Any


def model_card(config: Mapping[str, Any], *, comparison: str | None = None) -> str:
    """Return a model card as the Hugging Face Hub shows it.

    Args:
        config: what config.json says.
        comparison: a Markdown table of scores beside other methods; a hint where None.

    Returns:
        Markdown with a YAML head.

    Example:
        ```python
        from infoform.model_card import model_card
        facts = {"model": "Net", "likelihood": "classification", "structure": "inf", "prior": "isotropic",
                 "prior_precision": 1.0, "num_data": 100.0, "temperature": 1.2, "noise": None, "layers": ["fc"],
                 "parameters": 10, "posterior_bytes": 99, "base_model": None, "infoform_version": "0"}
        assert "from_pretrained" in model_card(facts)
        ```
    """
    base = config["base_model"]
    head = ["---", "library_name: infoform", "tags:", "- uncertainty", "- calibration", "- laplace-approximation"]
    head += [f"base_model: {base}"] if base else []
    of = f" of `{base}`" if base else ""
    layers = config["layers"]
    shown = ", ".join(f"`{name}`" for name in layers[:5]) + (f" and {len(layers) - 5} more" if len(layers) > 5 else "")
    facts = {
        "likelihood": config["likelihood"],
        "layers with a posterior": shown,
        "structure": config["structure"],
        "prior": f"{config['prior']}, precision {config['prior_precision']}",
        "temperature": config["temperature"],
        "noise": config["noise"],
        "fitted examples": config["num_data"],
        "parameters of the network": f"{config['parameters']:,}",
        "bytes of the posterior": f"{config['posterior_bytes']:,}",
        "infoform": config["infoform_version"],
    }
    rows = [f"| {name} | {value} |" for name, value in facts.items() if value is not None]
    scores = comparison or "Not measured. `infoform.compare` writes a table for this place: give it as `comparison=`."
    return "\n".join(
        [
            *head,
            "---",
            "",
            f"# {config['model']} with uncertainty",
            "",
            f"A posterior over the weights{of}, in sparse information form: calibrated probabilities, their "
            "uncertainty, and a warning for inputs unlike the training data.",
            "",
            "## Scores",
            "",
            scores,
            "",
            "## Use",
            "",
            "```python",
            "import infoform",
            "",
            'laplace = infoform.Laplace.from_pretrained("FOLDER OR HUB NAME", model)  # you bring the network\'s code',
            "prediction = laplace.predict(inputs)",
            "```",
            "",
            "## What it is",
            "",
            "| | |",
            "|---|---|",
            *rows,
            "",
            "Probabilities are calibrated on data like those it was tuned on. For other inputs they are not: "
            "`prediction.novelty` tells of one.",
            "",
        ]
    )

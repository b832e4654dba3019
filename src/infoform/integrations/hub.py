"""The Hugging Face Hub: a posterior and its network under one name, by huggingface_hub's own mixin.

Folders are tested; transfers to and from the Hub itself are the mixin's, and were never tried online.
"""

from pathlib import Path
from typing import Any

from torch import nn

from infoform.common.extras import needed_by
from infoform.laplace import Laplace

with needed_by("the Hub needs"):
    from huggingface_hub import ModelHubMixin, snapshot_download


class HubLaplace(ModelHubMixin):
    """A fitted posterior that the Hub can take and give.

    Args:
        laplace: A fitted posterior.
        base_model: The model that the network is, or was made from.
        comparison: A Markdown table for the model card.

    Example:
        ```python
        from infoform.integrations.hub import HubLaplace

        HubLaplace(laplace).push_to_hub("you/digits-with-uncertainty")
        laplace = HubLaplace.from_pretrained("you/digits-with-uncertainty", model=model).laplace
        ```
    """

    def __init__(self, laplace: Laplace, *, base_model: str | None = None, comparison: str | None = None) -> None:
        self.laplace, self.base_model, self.comparison = laplace, base_model, comparison

    def _save_pretrained(self, save_directory: Path) -> None:
        self.laplace.save_pretrained(save_directory, base_model=self.base_model, comparison=self.comparison)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **model_kwargs: Any,
    ) -> "HubLaplace":
        folder = Path(model_id)
        if not folder.is_dir():
            folder = Path(
                snapshot_download(
                    model_id,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                )
            )
        model: nn.Module = model_kwargs["model"]
        return cls(Laplace.from_pretrained(folder, model))

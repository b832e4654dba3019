"""YAML as options need it: plain values, no references.

A reference (`*name`) makes a few lines stand for more values than any memory holds: ten lists that each name the one
before ten times are ten thousand million entries. Options have no use for them.
"""

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain values and refuses references to values that stand elsewhere."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"the reference '*{event.anchor}' is not allowed, write the value itself", event.start_mark
            )
        return super().compose_node(parent, index)


def read_yaml(text: str) -> Any:
    """Return the values that a text of YAML stands for.

    Args:
        text: One document without references.

    Returns:
        Plain values: numbers, text, lists and dicts.

    Raises:
        yaml.YAMLError: If the text is no YAML, or has a reference.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # which is a safe loader
    except RecursionError:
        raise yaml.YAMLError("values are nested too deeply") from None
    except ValueError as error:  # a tag that its value does not fit, as '!!float x'
        raise yaml.YAMLError(str(error)) from error

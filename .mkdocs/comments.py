"""What the API reference reads from the source besides docstrings.

A field or property says its shape behind a `#`. A function with the name of its module is known
by its full path here, since one name cannot be both.
"""

from typing import Any

import griffe


class TrailingComments(griffe.Extension):
    """Give attributes that have no docstring the comment on their line."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Read the comment of a field."""
        if attr.docstring is not None or attr.lineno is None or not attr.lines:
            return
        code, mark, comment = attr.lines[0].partition("  # ")
        if mark and code.strip() and not comment.startswith(("type:", "noqa")):
            attr.docstring = griffe.Docstring(comment.strip(), parent=attr)


class ModulesFirst(griffe.Extension):
    """Leave a package's name to its submodule where a function has the same."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Forget such functions, before submodules are read."""
        for name, member in list(mod.members.items()):
            if member.is_alias and member.target_path == f"{mod.path}.{name}.{name}":  # type: ignore[union-attr]
                mod.del_member(name)

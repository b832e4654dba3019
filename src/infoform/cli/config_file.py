"""Options in a YAML file: read before those of the command line, and written so that a run can be repeated.

infoform fit --config options.yaml --rank 200
"""

from pathlib import Path
from typing import Any

import typer
import yaml

from infoform.cli.mistakes import Mistake
from infoform.cli.plain_yaml import read_yaml
from infoform.common.whole_files import write_text

NOT_SAVED = ("config", "debug", "json", "quiet", "force", "restart", "trust", "help")  # they do not change the result


def use_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's values the defaults of this verb; the callback of `--config`."""
    if path is None or context.resilient_parsing:
        return path
    context.default_map = {**(context.default_map or {}), **read_config(context, path)}
    return path


def read_config(context: typer.Context, path: Path) -> dict[str, Any]:
    """Return a YAML file's options by the names of the verb's parameters."""
    if not path.is_file():
        raise Mistake(f"there is no file '{path}' to read options from; check --config.")
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Mistake(
            f"'{path}' is no YAML file ({' '.join(str(error).split())}); write lines of 'option: value'."
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Mistake(f"'{path}' must hold lines of 'option: value', got a {type(content).__name__}.")
    names = _names(context)
    unknown = [str(key) for key in content if _flag(str(key)) not in names]
    if unknown:
        raise Mistake(
            f"'{path}' has the option '{unknown[0]}', which 'infoform {context.info_name}' does not take; "
            f"it takes {', '.join(sorted(names))}."
        )
    return {names[_flag(str(key))]: _value(value) for key, value in content.items() if value is not None}


def used_options(context: typer.Context) -> dict[str, Any]:
    """Return every option of this run that has a value, by its name on the command line."""
    names = {name: flag for flag, name in _names(context).items()}
    return {
        flag: _plain(context.params[name])
        for name, flag in names.items()
        if name not in NOT_SAVED and context.params.get(name) not in (None, [], ())
    }


def write_config(context: typer.Context, path: Path, *, name: str | None = None) -> None:
    """Write the options of this run so that `--config` can read them; `name` is what the file will be called."""
    head = f"# infoform {context.info_name} --config {name or path.name}   does this again\n"
    text = yaml.safe_dump(used_options(context), sort_keys=False, allow_unicode=True)
    write_text(path, head + text)


def _names(context: typer.Context) -> dict[str, str]:
    """Return the name of each parameter by its long flag without dashes: `prior_rank` by `prior-rank`."""
    names = {}
    for parameter in context.command.params:
        if parameter.name is None or parameter.name in ("config", "help"):
            continue
        flags = [flag for flag in parameter.opts if flag.startswith("--")] or [parameter.name]
        names[_flag(flags[0])] = parameter.name
    return names


def _flag(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _value(value: Any) -> Any:
    if isinstance(value, dict):  # options that take a mapping read it as YAML
        return yaml.safe_dump(value, default_flow_style=True, sort_keys=False).strip()  # the first match counts
    return [str(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value

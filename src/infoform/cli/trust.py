"""Which runs were made here: only their records may name code that is run without being asked for.

A run's record names the function that builds the network. In a run from elsewhere that can be any function of any
package, with any arguments. So `fit` signs what it was told with a key of the user's own, which lies in the user's
configuration (0600) and in no run. The other verbs take code from a record only if the signature fits, or with
`--trust`; a `--model` on the command line needs neither.
"""

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from infoform.cli.mistakes import Mistake
from infoform.cli.options import ModelOptions
from infoform.cli.references import shown
from infoform.common.whole_files import write_text
from infoform.records.fit import NetworkSource


def signature(source: NetworkSource) -> str | None:
    """Return the signature of what the user was told to run; None where there is no place for a key."""
    try:
        key = _key(make=True)
    except OSError:
        return None
    return None if key is None else _signed(key, source)


def check_trust(source: NetworkSource, options: ModelOptions, run: Path) -> None:
    """Raise a Mistake if loading the network would run code that only a record from elsewhere names."""
    if options.trust or _made_here(source):
        return
    if options.model is None:
        raise Mistake(
            f"'{run}' was not made here, and its record names code to run ('{shown(source.model)}'); give the network "
            "again with --model file.py:function, or add --trust if you trust whoever made the run."
        )
    if source.arguments and not options.model_arg:
        given = " ".join(f"--model-arg {name}={json.dumps(value)}" for name, value in source.arguments.items())
        raise Mistake(
            f"'{run}' was not made here, and its record names arguments for --model; give them again ({given[:200]}), "
            "or add --trust if you trust whoever made the run."
        )


def _made_here(source: NetworkSource) -> bool:
    try:
        key = _key(make=False)
    except OSError:
        return False
    if key is None or source.signature is None or not source.signature.isascii():
        return False
    return hmac.compare_digest(_signed(key, source), source.signature)


def _signed(key: bytes, source: NetworkSource) -> str:
    text = json.dumps([source.model, source.weights, dict(source.arguments)], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """Return the user's key; None where there is none and none is to be made."""
    path = key_file()
    if not path.is_file():
        if not make:
            return None
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = os.umask(0o077)
        try:
            write_text(path, secrets.token_hex(32))
        finally:
            os.umask(before)
    return path.read_text(encoding="ascii", errors="replace").strip().encode() or None


def key_file() -> Path:
    """Return where the user's key lies."""
    given = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA")
    try:
        root = Path(given) if given else Path.home() / ".config"
    except RuntimeError as error:  # no home
        raise OSError(str(error)) from error
    return root / "infoform" / "key"

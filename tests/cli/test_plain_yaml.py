"""Options are plain values: what stands for more than is written is refused, in the file and on the command line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from trees import NETWORK, TREES

from infoform.cli.plain_yaml import read_yaml

LAUGHS = "a: &a [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1 or ''}, *a{n - 1 or ''}]\n" for n in range(1, 40))


@pytest.mark.parametrize("text", ["3", "a: [1, {b: null}]", "'text'", "", "{layer: 4, other: 0.5}", "- 1\n- x"])
def test_plain_values_are_read_as_by_safe_load(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", [LAUGHS, "&a [*a]", "base: &b {x: 1}\nmore: {<<: *b}"])
def test_references_are_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"the reference '\*.*' is not allowed, write the value itself"):
        read_yaml(text)


def test_code_is_refused() -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml("!!python/object/apply:os.system ['true']")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="nested too deeply"):
        read_yaml("[" * 5000)


def test_a_file_of_options_and_an_argument_with_references_end_in_a_sentence(home: Path, fail: Any) -> None:
    Path("laughs.yaml").write_text(LAUGHS)
    assert "is no YAML file" in fail("fit", "run", "--config", "laughs.yaml", *NETWORK, *TREES)
    said = fail("fit", "run", *NETWORK, *TREES, "--model-arg", "width=&a [*a]")
    assert "--model-arg must be name=value with a value in YAML" in said

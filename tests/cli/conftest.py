"""Command lines run in this process."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import tokenizers
from models.tiny_llama import TINY, random_weights, write_folder

from wafer_jax.cli import main
from wafer_jax.models.families import read_config


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of a refused command line."""
        assert self.code == 2, (self.code, self.err)
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")


@pytest.fixture
def wafer(capsys):
    """Run ``wafer-jax`` with the given arguments."""

    def run(*arguments: str) -> Outcome:
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a tiny random model without tokenizer."""
    weights = random_weights(read_config(TINY))
    return write_folder(tmp_path_factory.mktemp("models") / "tiny", weights)


@pytest.fixture(scope="session")
def talking(tmp_path_factory):
    """The same model with a tokenizer of the words w0 .. w96 and a chat template."""
    weights = random_weights(read_config(TINY))
    folder = write_folder(tmp_path_factory.mktemp("models") / "talking", weights)
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    template = "w1 {{ messages[0].content }} w2"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder

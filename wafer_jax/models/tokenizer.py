"""Text to token ids and back, and chat templates.

From a Hugging Face ``tokenizer.json``, or rebuilt from the byte-pair table inside a GGUF file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from wafer_jax.errors import WaferError
from wafer_jax.models.hf_folder import read_json

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """Encodes, decodes, and renders conversations.

    Attributes:
        vocab_size: ids run from 0 to this minus one.
        chat_template: the Jinja source, or None.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        where: str,
        prefix_ids: Sequence[int] = (),
        chat_template: str | None = None,
        special: Mapping[str, str] | None = None,
    ):
        """Wrap a backend.

        Args:
            backend: the byte-pair encoder.
            where: the file, for errors.
            prefix_ids: ids put before every encoded text that the backend does not add itself.
            chat_template: Jinja source that renders a conversation.
            special: names that the template may use, such as ``bos_token``, to their text.
        """
        self.chat_template = chat_template
        self._backend = backend
        self._where = where
        self._prefix_ids = tuple(prefix_ids)
        self._special = dict(special or {})

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Turn text into ids.

        Args:
            text: any Unicode text.
            add_special_tokens: whether to add what the model expects around a text; False for
                text from ``apply_chat_template``, which has it already.

        Returns:
            The ids.
        """
        ids = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
        return [*self._prefix_ids, *ids] if add_special_tokens else ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Turn ids into text.

        Args:
            ids: token ids; bytes that are no valid UTF-8 become U+FFFD.
            skip_special_tokens: whether to leave out markers such as end-of-text.

        Returns:
            The text.
        """
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> str:
        """Render a conversation as the text that the model was trained on.

        Args:
            messages: each with ``role`` and ``content``.
            add_generation_prompt: whether to end with the opening of the assistant's turn.

        Returns:
            The text, for ``encode(..., add_special_tokens=False)``.

        Raises:
            WaferError: no template, or the template refuses these messages.
        """
        if self.chat_template is None:
            raise WaferError(f"{self._where}: has no chat template; encode plain text instead")
        # Templates come with the weights from strangers: hence the sandbox.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise_exception
        try:
            return environment.from_string(self.chat_template).render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                **self._special,
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            reason = str(error).split("\n")[0][:200]
            raise WaferError(f"{self._where}: the chat template failed: {reason}") from None


def from_gguf(metadata: Mapping[str, Any], *, where: str) -> Tokenizer | None:
    """Rebuild the tokenizer that a GGUF file describes.

    Args:
        metadata: the file's metadata.
        where: the file, for errors.

    Returns:
        The tokenizer, or None when the file has none or one that is not byte-level BPE.

    Raises:
        WaferError: its tables are inconsistent.
    """

    def get(name: str) -> Any:
        return metadata.get("tokenizer.ggml." + name)

    words = _pre_tokenizer(get("pre"))
    if get("model") != "gpt2" or words is None:
        return None
    tokens, merges, kinds = get("tokens"), get("merges"), get("token_type")
    if not (_texts(tokens) and _texts(merges) and all(m.count(" ") == 1 for m in merges)):
        raise WaferError(f"{where}: the tokenizer's tokens or merges are missing or damaged")
    if kinds is not None and (not isinstance(kinds, list) or len(kinds) != len(tokens)):
        raise WaferError(f"{where}: the tokenizer's token_type does not match its tokens")
    try:
        backend = tokenizers.Tokenizer(
            models.BPE(
                vocab={token: i for i, token in enumerate(tokens)},
                merges=[tuple(m.split(" ")) for m in merges],
                ignore_merges=get("pre") == "llama-bpe",
            )
        )
    except Exception as error:  # the Rust library raises plain Exception
        reason = str(error).split("\n")[0][:120]
        raise WaferError(f"{where}: the tokenizer's tables are damaged ({reason})") from None
    if backend.get_vocab_size() != len(tokens):
        raise WaferError(f"{where}: the tokenizer lists a token twice")
    backend.pre_tokenizer = words
    backend.decoder = decoders.ByteLevel()
    control, user_defined = 3, 4  # gguf.TokenType
    backend.add_special_tokens(
        [
            AddedToken(token, special=kind == control, normalized=False)
            for token, kind in zip(tokens, kinds or (), strict=False)
            if kind in (control, user_defined)
        ]
    )
    special = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = get(f"{key}_token_id")
        if type(token_id) is int and 0 <= token_id < len(tokens):
            special[f"{name}_token"] = tokens[token_id]
    prefix = [get("bos_token_id")] if get("add_bos_token") and "bos_token" in special else []
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(
        backend,
        where=where,
        prefix_ids=prefix,
        chat_template=template if isinstance(template, str) else None,
        special=special,
    )


def from_folder(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a Hugging Face folder.

    Args:
        folder: with ``tokenizer.json`` and perhaps ``tokenizer_config.json``.

    Returns:
        The tokenizer, or None without ``tokenizer.json``.

    Raises:
        WaferError: a file is damaged.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the Rust library raises plain Exception
        reason = str(error).split("\n")[0][:120]
        raise WaferError(f"{path}: not a tokenizer ({reason})") from None
    settings: Any = {}
    if (folder / "tokenizer_config.json").is_file():
        settings = read_json(folder / "tokenizer_config.json")
    if not isinstance(settings, dict):
        raise WaferError(f"{folder / 'tokenizer_config.json'}: expected a JSON object")
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            special[name] = value
    return Tokenizer(
        backend,
        where=str(path),
        chat_template=_folder_template(folder, settings.get("chat_template")),
        special=special,
    )


def _folder_template(folder: Path, setting: Any) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise WaferError(f"{path}: cannot be read ({error})") from None
    if isinstance(setting, list):  # several, by name
        named = {t.get("name"): t.get("template") for t in setting if isinstance(t, dict)}
        setting = named.get("default")
    return setting if isinstance(setting, str) else None


def _pre_tokenizer(name: Any) -> pre_tokenizers.PreTokenizer | None:
    """How text is cut into words before merging; None for a name that is not known here."""
    if name in ("gpt2", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "smollm":
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    if name == "llama-bpe":
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_LLAMA3_WORDS), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    return None


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], str)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)

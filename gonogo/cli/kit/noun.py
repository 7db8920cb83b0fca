"""A noun of the API, in words: its address, what may be asked and done, how the command shows it.

`gonogo_service.kit.resource` makes the API of a noun of it, and `nouns.app_of` its command, also in
a bare install.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from gonogo.spec.validation import Model

Item = Mapping[str, Any]
Cell = str | Callable[[Item], Any]
"""A column of a table: the dotted path of a field, or a function of the item."""
Scope = Literal["read", "submit", "admin"]


@dataclass(frozen=True)
class Verb:
    """Something that is done to a noun: create, change or remove.

    Attributes:
        done: the past tense, such as "registered": the audit's action is `build.registered`, and
            the command prints it.
        sentence: what it does; the API's summary and the command's help begin with it.
        positional: the fields that the command takes without the name of an option.
        options: field -> the command's option, where it isn't the field's name; "": it has none.
        command: False where the command has a function of its own, such as `suites push`.
        template: what the command prints of the record, such as "{id} is {state}".
        path: the end of an action's path, where it isn't the command's name.
    """

    done: str
    sentence: str
    body: type[Model] | None = None
    scope: Scope = "submit"
    positional: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    command: bool = True
    template: str = ""
    path: str = ""


@dataclass(frozen=True)
class Noun:
    """Things of one kind, such as suites.

    Attributes:
        name: their name in addresses and commands, in the plural.
        words: what one of them is called in a sentence, such as "a suite".
        about: what the help of their command says after its line in `gonogo --help`.
        key: the field that names one of them.
        name_key: a field that names one of them as well, where only one has that name.
        filters: the parameters of their list -> what each does, for the help.
        kinds: filter -> its type, where it isn't text.
        defaults: filter -> the value that the command gives it where none is named; "any" is none.
        actions: what else may be done to one, by `POST /NOUN/KEY:ACTION` and `gonogo NOUN ACTION`.
        page: from the key to the path of its page; None: it has none.
        parts: fields that hold a list of objects -> the columns of their table.
        labels: field -> the label of each of its values, where they have labels.
        plural: what several of them are called in a sentence; default: their name.
        path: their address in the API; default: /NAME.
        is_paged: False where the API answers with all of them at once.
    """

    name: str
    columns: Mapping[str, Cell]
    words: str
    about: str = ""
    key: str = "id"
    name_key: str | None = None
    filters: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    scope: Scope = "read"
    create: Verb | None = None
    change: Verb | None = None
    remove: Verb | None = None
    actions: Mapping[str, Verb] = field(default_factory=dict)
    page: Callable[[str], str] | None = None
    parts: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    plural: str = ""
    path: str = ""
    is_paged: bool = True

    @property
    def one(self) -> str:
        """Return the name of one of them."""
        return self.words.partition(" ")[2]

    @property
    def several(self) -> str:
        """Return the name of several of them."""
        return self.plural or self.name

    @property
    def address(self) -> str:
        """Return the path of the list in the API."""
        return self.path or f"/{self.name}"

    @property
    def argument_help(self) -> str:
        """Return the help of the argument that names one of them."""
        return f"Its {self.key}{f' or {self.name_key}' if self.name_key else ''}."

    def of(self, identity: str) -> str:
        """Return the path of one of them in the API."""
        return f"{self.address}/{quote(identity, safe='/@+:')}"

"""Profiles: named clusters in a file of the user, and the one that commands use without other options.

The file is `odradek/profiles.json` in the user's configuration folder, with mode 0600.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.client import ClientError
from odradek.private_files import make_private_directory, replace_private

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_HOME_VARIABLE = "XDG_CONFIG_HOME"


@dataclass(frozen=True, slots=True)
class Profile:
    """A named cluster: addresses of brokers, and the absolute path of a file of client properties."""

    bootstrap: str
    command_config: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles of a user by name, and the name of the one in use."""

    current: str | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)


def path_of(environment: Mapping[str, str]) -> Path:
    """Return the path of the file with the profiles."""
    given = environment.get(CONFIG_HOME_VARIABLE)
    home = environment.get("HOME")
    base = Path(given) if given else (Path(home) if home else Path.home()) / ".config"
    return base / "odradek" / "profiles.json"


def read(environment: Mapping[str, str]) -> Profiles:
    """Read the profiles of the user. Raise ClientError if the file cannot be read or decoded."""
    path = path_of(environment)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        stored = {str(name): Profile(**values) for name, values in raw["profiles"].items()}
        return checked(Profiles(raw["current"], stored))
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClientError(f"{path} is damaged ({error}); remove it, and store the profiles again") from error


def checked(profiles: Profiles) -> Profiles:
    """Return the profiles. Raise TypeError if a value is neither text nor None."""
    values: list[object] = [profiles.current]
    for profile in profiles.profiles.values():
        values += [profile.bootstrap, profile.command_config]
    if wrong := [value for value in values if not isinstance(value, str | None)]:
        raise TypeError(f"{wrong[0]!r} is no text")
    return profiles


def write(environment: Mapping[str, str], profiles: Profiles) -> None:
    """Replace the profiles of the user."""
    path = path_of(environment)
    make_private_directory(path.parent)
    replace_private(path, json.dumps(asdict(profiles), indent=1) + "\n")


def in_use(environment: Mapping[str, str]) -> Profile | None:
    """Return the profile in use, or None. Raise ClientError if the profile does not exist."""
    stored = read(environment)
    if stored.current is None:
        return None
    if stored.current not in stored.profiles:
        raise ClientError(f"there is no profile {stored.current}, which is in use", "use another one: odradek use NAME")
    return stored.profiles[stored.current]

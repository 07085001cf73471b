"""WGSL templates: where they are, what parameters each takes, and rendering one from a program key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NoReturn

import jinja2
from jinja2 import meta

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.program import ParameterValue, ProgramKey
from pageloom.errors import InvalidArgument, NotSupported

HalfStorage = Literal["f16", "packed_f16"]


def half_storage(info: DeviceInfo) -> HalfStorage:
    """The parameter `storage` of templates that include `lib/storage.wgsl.j2`, for f16 data on this device."""
    return "f16" if info.has_f16 else "packed_f16"


def templates_folder() -> Path:
    """The folder `wgsl/`: inside the installed package, or at the root of a checkout."""
    here = Path(__file__).resolve()
    package, checkout = here.parents[2] / "wgsl", here.parents[4] / "wgsl"
    return package if package.is_dir() else checkout


class TemplateSet:
    """The templates below one folder. A template may import and include others by their literal paths only."""

    def __init__(self, loader: jinja2.BaseLoader) -> None:
        self._environment = jinja2.Environment(
            loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
        )
        self._environment.globals["refuse"] = _refuse
        self.parameters = cache(self._parameters)

    def names(self) -> list[str]:
        """The paths of all templates, sorted."""
        return self._environment.list_templates()

    def render(self, template: str, parameters: Mapping[str, ParameterValue]) -> str:
        """The WGSL of a template. Raises `InvalidArgument` unless it is given exactly the parameters that it uses."""
        expected = self.parameters(template)
        missing, unused = expected - parameters.keys(), parameters.keys() - expected
        if missing or unused:
            raise InvalidArgument(
                f"template {template} uses the parameters {_listed(expected)}; "
                f"not given: {_listed(missing)}; given and not used: {_listed(unused)}",
                param=min(missing | unused),
            )
        return self._environment.get_template(template).render(parameters)

    def _parameters(self, template: str) -> frozenset[str]:
        """The names that a template, and whatever it imports or includes, takes from its key."""
        loader = self._environment.loader
        assert loader is not None
        try:
            source, _, _ = loader.get_source(self._environment, template)
        except jinja2.TemplateNotFound as error:
            raise InvalidArgument(f"there is no template {template}") from error
        tree = self._environment.parse(source)
        names = set(meta.find_undeclared_variables(tree))
        for other in meta.find_referenced_templates(tree):
            if other is None:
                raise InvalidArgument(f"template {template} includes another by a computed name")
            names |= self.parameters(other)
        return frozenset(names)


def render(key: ProgramKey) -> str:
    """The WGSL of a program, from the templates that come with the project."""
    return SHIPPED.render(key.template, dict(key.parameters))


def _refuse(reason: str) -> NoReturn:
    raise NotSupported(reason)


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


SHIPPED = TemplateSet(jinja2.FileSystemLoader(templates_folder()))

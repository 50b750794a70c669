"""A Terraform provider for tests, with one resource: a file on this host. So there are real things that others can change.

Run by the Python that has the package `tf`; see `conftest.plugins`.
"""
# mypy: ignore-errors

from pathlib import Path

from tf import types
from tf.iface import Provider, Resource
from tf.runner import run_provider
from tf.schema import Attribute, Schema


class File(Resource):
    """A file; another path is another file. What is written to `…/slow` waits until `…/go` is there."""

    def __init__(self, provider=None):
        pass

    @classmethod
    def get_name(cls):
        return "file"

    @classmethod
    def get_schema(cls):
        path = Attribute("path", types.String(), required=True, requires_replace=True)
        return Schema(attributes=[path, Attribute("content", types.String(), required=True)])

    def validate(self, diagnostics, type_name, config):
        pass

    def create(self, context, planned):
        path = Path(planned["path"])
        if path.name == "slow":
            import time

            path.with_name("begun").touch()
            while not path.with_name("go").exists():
                time.sleep(0.01)
        if path.exists():
            context.diagnostics.add_error("It exists", f"{path} is there already")
            return None
        path.write_text(planned["content"])
        with path.with_name("made").open("a") as log:
            log.write(f"{path.name}\n")
        return planned

    def read(self, context, current):
        try:
            return {**current, "content": Path(current["path"]).read_text()}
        except FileNotFoundError:
            return None

    def update(self, context, current, planned):
        Path(planned["path"]).write_text(planned["content"])
        return planned

    def delete(self, context, current):
        Path(current["path"]).unlink(missing_ok=True)

    def upgrade(self, context, version, old):
        return old


class Shelf(Provider):
    """The provider `shelf`."""

    def full_name(self):
        return "homeostat.test/local/shelf"

    def get_model_prefix(self):
        return "shelf_"

    def get_provider_schema(self, diagnostics):
        return Schema(attributes=[])

    def validate_config(self, diagnostics, config):
        pass

    def configure_provider(self, diagnostics, config):
        pass

    def get_data_sources(self):
        return []

    def get_resources(self):
        return [File]


if __name__ == "__main__":
    run_provider(Shelf())

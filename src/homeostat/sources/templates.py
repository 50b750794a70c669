"""Jinja2 templates, in a sandbox and in a process of their own: what a template does ends with it, and so does how long it takes.

    homeostat.sources.templates ─▶ python -m homeostat.sources.templates ─▶ texts

Templates see `env` (the environment's name) and `vars`, and may include others of the same commit. They reach nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from homeostat.sources.files import RenderError

SUFFIX = ".j2"
SECONDS = 10
MOST_BYTES = 512 * 1024 * 1024
"""Of memory."""
MOST_OUTPUT = 16 * 1024 * 1024


def render_templates(
    templates: Mapping[str, str], wanted: list[str], variables: Mapping[str, str], environment: str
) -> dict[str, str]:
    """The texts of the wanted templates. RenderError with file and line where one cannot be rendered, or takes too much."""
    asked = json.dumps({"templates": templates, "wanted": wanted, "vars": variables, "env": environment})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", __name__], input=asked.encode(), capture_output=True, env={"PATH": ""},
            timeout=SECONDS * 3, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RenderError(f"the templates take more than {SECONDS} s to render", wanted[0]) from None
    if done.returncode != 0 or len(done.stdout) > MOST_OUTPUT:
        why = (
            "give too much text"
            if done.returncode == 0
            else f"take more than {SECONDS} s or {MOST_BYTES // 2**20} MiB to render"
        )
        raise RenderError(f"the templates {why}", wanted[0])
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise RenderError(answer["problem"], answer["file"], answer["line"])
    texts: dict[str, str] = answer["texts"]
    return texts


def _child() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    asked = json.loads(sys.stdin.buffer.read())
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.DictLoader(asked["templates"]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
    environment.globals = {"range": environment.globals["range"], "vars": asked["vars"], "env": asked["env"]}
    texts: dict[str, str] = {}
    answer: dict[str, object] = {"texts": texts}
    for name in asked["wanted"]:
        try:
            texts[name] = environment.get_template(name).render()
        except jinja2.TemplateSyntaxError as error:
            answer = {"problem": error.message or "it is no template", "file": error.name or name, "line": error.lineno}
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            answer = {"problem": f"{type(error).__name__}: {error}", "file": name, "line": _line(error)}
        if "problem" in answer:
            break
    sys.stdout.buffer.write(json.dumps(answer).encode())


def _line(error: BaseException) -> int:
    """Where in a template it happened: the last frame that is one's."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if "__jinja_template__" in trace.tb_frame.f_globals or trace.tb_frame.f_code.co_filename in ("<template>",):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


if __name__ == "__main__":
    _child()
